r"""Verifier type math: what is right, what is refused, and that no answer runs as code."""

import json
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hacpo.task_settings import VerifierConfig
from hacpo.types import Problem
from hacpo.verifiers import VerifierPool, grade
from tests.cli_runner import environment

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "data" / "vectors"
DATA = ROOT.parent / "shared" / "data"
PAIRS = json.loads((VECTORS / "answer_pairs.json").read_text())
MISSES = {
    "list with or": "x=1 or x=2 holds two equals signs, and such answers are refused: a chain of "
    "guesses looks the same",
}
IS_PYTHON = [
    "__import__('os').system('touch {canary}')",
    "open('{canary}','w')",
    "exec(\"open('{canary}','w')\")",
    "x.__class__.__base__.__subclasses__()[0].__init__.__globals__['os'].system('touch {canary}')",
    r"\operatorname{{__import__('os').system}}('touch {canary}')",
    r"\text{{__import__('os').system('touch {canary}')}}",
    r"\mathrm{{open('{canary}','w')}} + 1",
]


def boxed(answer: str) -> str:
    return rf"The answer is \boxed{{{answer}}}."


@pytest.mark.parametrize("pair", PAIRS, ids=[pair["name"] for pair in PAIRS])
def test_a_labelled_pair_is_graded_as_labelled_or_a_known_miss(pair: dict[str, str]) -> None:
    is_right = grade(pair["response"], pair["gold"]).reward == 1.0
    if pair["name"] in MISSES:
        assert is_right != pair["equal"], "no miss any more: take it off the list"
    else:
        assert is_right == pair["equal"]


def test_at_least_41_of_the_45_labels_are_met() -> None:
    assert len(PAIRS) == 45
    assert len(MISSES) <= 4
    assert all(pair["equal"] for pair in PAIRS if pair["name"] in MISSES)  # no false positive


@pytest.mark.parametrize(
    "answer",
    [
        "6=7",
        "1=2=3=7",
        "6\N{FULLWIDTH EQUALS SIGN}7",
        r"y=x=7",
        r"x=6,7",
        r"x=6,x=7",
        r"\frac{6}{1}=7",
        r"6\approx 7",
        r"6\equiv 7",
        r"6 ≡ 7",
        r"6\to 7",
        r"6 → 7",
        r"6\Rightarrow 7",
        r"6\text{ or }7",
        r"7\text{ or 6}",
        r"7\text{ or maybe }6",
        r"7\text{ (not 6)}",
        r"7\mbox{, or else 6}",
        r"7\text{ or six}",
        "6 or 7",
        r"\pm 7",
        r"\{6,7\}",
        "6;7",
        "6|7",
        r"6\lor 7",
        r"6\ne 7",
        r"x\in\{6,7\}",
        r"x\ge 7",
        "[0,10]",
        "(7,7)",
        r"7\ldots 6",
        "6 7",
        r"6\ 7",
        r"6\quad 7",
        "$6$ or $7$",
        "0,1,2,3,4,5,6,7,8,9",
        "7_8",
        "7!",
        "7x",
        "6/7",
        "7.0000000000001",
        r"7\cdot 10^{1}",
        "67",
        "\N{ARABIC-INDIC DIGIT SEVEN}",
    ],
)
def test_an_answer_that_is_not_seven_or_names_more_than_seven_is_wrong(answer: str) -> None:
    assert grade(boxed(answer), "7").outcome == "wrong"


@pytest.mark.parametrize(
    ("gold", "answer", "outcome"),
    [
        ("7", "7", "exact"),
        ("7", "7.", "exact"),
        ("7", "\N{FULLWIDTH DIGIT SEVEN}", "exact"),
        ("7", r"\text{7}", "exact"),
        ("-3", "\N{MINUS SIGN}3", "exact"),
        ("1000000", r"1\,000\,000", "exact"),
        ("1000000", "1 000 000", "exact"),
        ("1000", "1{,}000", "exact"),
        (r"\sqrt{2}", "√(2)", "exact"),
        ("x^{10}", "x¹⁰", "exact"),
        ("C", "(C)", "exact"),
        (r"\frac12", r"\frac 1 2", "exact"),
        ("7", "07", "equivalent"),
        ("7", "7.000", "equivalent"),
        ("7", "7e0", "equivalent"),
        ("7", "x=7", "equivalent"),
        ("7", r"\text{area}=7", "equivalent"),
        ("7", "7 apples", "equivalent"),
        ("7", r"7\,\text{m/s}^2", "equivalent"),
        ("7", r"7^\circ", "equivalent"),
        ("7", r"\frac{14}{2}", "equivalent"),
        ("3.5", "3½", "equivalent"),
        ("1,234.5", "1234.50", "equivalent"),
        (r"3\sqrt{13}", r"\sqrt{117}", "equivalent"),
        (r"\frac{\pi}{2}", "π/2", "equivalent"),
        (r"(-\infty,2]", "x≤2", "equivalent"),
        ("7e37", r"7\times 10^{37}", "equivalent"),
        ("13", "6 7", "wrong"),  # the parser adds them
        ("67", "6 7", "wrong"),
        (r"\frac{1}{3}", "0.333333", "wrong"),
        (r"1.6\times 10^{-19}", r"3.2\times 10^{-19}", "wrong"),  # both 0 to twelve decimals
        ("10^{-20}", "10^{-21}", "wrong"),
        ("1" * 5000, "1" * 4999 + "2", "wrong"),
        (r"\text{even}", r"\text{odd}", "wrong"),
        (r"\text{east}", "East", "equivalent"),
        (r"\text{east}", "seat", "wrong"),
        ("10^{400}", r"10^{399}\cdot 10", "equivalent"),
        ("10^{400}", r"10^{399}\cdot 11", "wrong"),
        (r"\infty", r"+\infty", "equivalent"),
        ("10,6,8", r"6, 8\text{, and }10", "equivalent"),
        (r"\tan x=2x", r"\tan x = 2 \cdot x", "equivalent"),
        ("7", r"\theta = 7", "equivalent"),
        ("7", r"\pi = 7", "wrong"),
        (r"\sqrt{2}i", r"i\sqrt{2}", "equivalent"),
        (r"\sqrt{2}i", r"-i\sqrt{2}", "wrong"),
        ("7", "", "no_answer"),
        ("7", "  ", "no_answer"),
    ],
)
def test_writings_of_one_value(gold: str, answer: str, outcome: str) -> None:
    graded = grade(boxed(answer), gold)
    assert (graded.outcome, graded.reward) == (outcome, float(outcome in ("exact", "equivalent")))


@pytest.mark.parametrize("response", ["", "7", "It is $7$.", r"\boxed{7", r"\boxed7", r"\boxed"])
def test_a_response_without_a_closed_box_has_no_answer(response: str) -> None:
    assert grade(response, "7").outcome == "no_answer"


def test_the_last_box_counts() -> None:
    assert grade(r"\boxed{7}, no: \boxed{6}", "7").outcome == "wrong"
    assert grade(r"\boxed{6}, no: \boxed{7}", "7").outcome == "exact"


def test_a_long_answer_is_compared_by_text_only() -> None:
    long = "+".join(["x"] * 2000)
    assert grade(boxed(long), "2000x") == grade(boxed(long), "5")
    assert grade(boxed(long), "2000x").reason == "longer than 2000 characters"
    assert grade(boxed(long), long).outcome == "exact"


def test_an_answer_that_does_not_end_is_ungraded_and_the_next_is_graded() -> None:
    stuck = grade(boxed("9^{9^{9^9}}"), "5")
    assert (stuck.outcome, stuck.reward) == ("timeout", None)
    assert grade(boxed("5"), "5").outcome == "exact"


@pytest.mark.parametrize("place", ["{}", r"\boxed{{{}}}", "${}$", r"The answer is $\boxed{{{}}}$"])
def test_no_answer_is_evaluated_as_python(tmp_path: Path, place: str) -> None:
    canary = tmp_path / "canary"
    for python in IS_PYTHON:
        code = python.format(canary=canary)
        assert grade(place.format(code), "5").reward == 0.0
        assert grade(boxed("5"), place.format(code)).reward == 0.0  # nor is a gold
        assert not canary.exists(), code


def test_the_worker_s_sympy_evaluates_numbers_and_names_only(tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path
        from sympy import sympify
        from hacpo.verifiers import equivalence
        canary = Path(sys.argv[1])
        code = f"open('{canary}', 'w')"
        sympify(code)
        assert canary.exists()  # sympify does evaluate: the canary sings
        canary.unlink()
        equivalence.load()
        for text in (code, f"__import__('os').system('touch {canary}')", "x.__class__", "sin(x)"):
            try:
                sympify(text)
            except Exception:
                continue
            raise SystemExit(text)
        assert not canary.exists()
        assert [sympify("12"), sympify("-1.5e-3"), sympify("1/3")]
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "canary")],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_grade_at_the_same_time() -> None:
    answers = [(boxed(str(i)), str(i - i % 2)) for i in range(60)]
    with ThreadPoolExecutor(6) as threads:
        outcomes = list(threads.map(lambda pair: grade(*pair).outcome, answers))
    assert outcomes == ["exact", "wrong"] * 30


def test_grading_outlives_the_thread_that_began_it() -> None:
    script = """
        import threading
        from hacpo.verifiers import grade
        thread = threading.Thread(target=grade, args=("5", "5"))
        thread.start()
        thread.join()
        print(grade(r"\\boxed{5}", "5").outcome)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("exact\n", "")


def test_a_forked_child_grades_with_a_worker_of_its_own() -> None:
    assert grade(boxed("5"), "5").outcome == "exact"
    child = os.fork()
    if child == 0:
        is_right = grade(boxed("0.5"), r"\frac12").outcome == "equivalent"
        os._exit(0 if is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert grade(boxed("0.25"), r"\frac14").outcome == "equivalent"  # the parent's still works


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="gold is 5, not a string"):
        grade(boxed("5"), 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="response is None"):
        grade(None, "5")  # type: ignore[arg-type]


def test_a_pool_of_type_math_grades_in_order(caplog: pytest.LogCaptureFixture) -> None:
    gold = Problem(id="p", problem="", answer=r"\frac{1}{2}")
    answers = ["0.5", r"\frac{2}{3}", r"\frac{1}{2}", "9^{9^{9^9}}", "(1,2)"]
    with VerifierPool(VerifierConfig(type="math", workers=2)) as pool, caplog.at_level("INFO"):
        grades = pool.grade([(gold, boxed(a)) for a in answers] + [(gold, "0.5")])
    outcomes = ["equivalent", "wrong", "exact", "timeout", "wrong", "no_answer"]
    assert [g.outcome for g in grades] == outcomes
    assert "graded 2 wrong, 1 equivalent, 1 exact, 1 timeout, 1 no_answer" in caplog.text


@settings(max_examples=150, deadline=None)
@given(
    st.text(
        "0123456789abcxyz+-*/^_()[]<>.,;:! $%&|'\"πé½\N{FULLWIDTH DIGIT TWO}", min_size=1
    ).filter(str.strip)
)
def test_the_right_answer_in_a_box_is_exact(gold: str) -> None:
    assert grade(boxed(gold), gold).outcome == "exact"


@settings(max_examples=150, deadline=None)
@given(
    st.integers(-(10**6), 10**6),
    st.integers(-(10**6), 10**6),
    st.sampled_from(["{}", "{}.", "x={}", "{}.0", r"{}\text{{ cm}}", "+{}", "({})", r"\{{{}\}}"]),
)
def test_another_integer_is_never_right(one: int, other: int, writing: str) -> None:
    is_right = grade(boxed(writing.format(other)), str(one)).reward == 1.0
    assert is_right <= (one == other)


PIECES = r"""
0 1 7 x e i + - = / ^ _ { } ( ) [ ] , . | & % $ < > ! \\ ~ ' ∞ ² √ \{ \} \frac \sqrt \log
\boxed{ \text{ \left \pm \int \sum \infty \cup \in \begin{pmatrix}
"""
LATEX = st.lists(
    st.sampled_from([*PIECES.split(), " ", "\n", "\x00", "\ud800"]),
    max_size=12,
).map("".join)


@settings(max_examples=60, deadline=None)
@given(LATEX, LATEX)
def test_no_text_makes_grading_fail(answer: str, gold: str) -> None:
    assert grade(boxed(answer), gold).outcome in (
        *("exact", "equivalent", "wrong", "no_answer", "timeout", "error"),
    )
    assert grade(boxed(answer), "123457").reward in (0.0, None)


def test_every_right_answer_of_the_data_is_right() -> None:
    if not DATA.is_dir():
        pytest.skip("no ../shared/data")
    for path in sorted(DATA.glob("*.jsonl")):
        golds = [json.loads(line)["answer"] for line in path.read_text().split("\n") if line]
        golds = [gold for gold in golds if gold]
        problems = [(Problem(id="p", problem="", answer=g), boxed(g)) for g in golds]
        with VerifierPool(VerifierConfig(type="math")) as pool:
            outcomes = [g.outcome for g in pool.grade(problems)]
        wrong = [gold for gold, o in zip(golds, outcomes, strict=True) if o != "exact"]
        assert not wrong, path.name
