"""Tasks of reasoning-gym: splits, scores, and what of an answer its scores may evaluate."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from hacpo.config import RunConfig
from hacpo.errors import DataError
from hacpo.presets import load_run
from hacpo.problems import check_disjoint, load_problems, problems_digest
from hacpo.task_settings import VerifierConfig
from hacpo.types import Problem
from hacpo.verifiers import VerifierPool
from hacpo.verifiers.gym import grade_gym

pytest.importorskip("reasoning_gym", reason="pip cannot get reasoning-gym here")

SUMS = "reasoning_gym:chain_sum:{}?size={}&min_terms=2&max_terms=2&min_digits=1&max_digits=2"


def problem(task: str) -> Problem:
    return load_problems(f"reasoning_gym:{task}:train?size=1")[0]


def test_splits_share_no_problem_whatever_their_sizes() -> None:
    train, held_out = (
        load_problems(SUMS.format("train", 400)),
        load_problems(SUMS.format("held_out", 150)),
    )
    check_disjoint(train, held_out)
    assert len({p.problem for p in train}) == len({p.id for p in train}) == 400
    assert len({p.problem for p in held_out}) == 150
    assert load_problems(SUMS.format("train", 50)) == train[:50]


def test_a_set_is_the_same_every_time() -> None:
    once = load_problems(SUMS.format("train", 20))
    assert problems_digest(once) == (
        "f98976f18ff84c286db3c98ac729d4beda72d2eb4aa6bc8951c40a7ead466d5e"
    )


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("reasoning_gym:chain_sum", "write reasoning_gym:NAME:train"),
        ("reasoning_gym:chain_sum:test", "write reasoning_gym:NAME:train"),
        ("reasoning_gym:nothing:train", "has no task 'nothing'; it has "),
        ("reasoning_gym:chain_sum:train?terms=2", "has no option 'terms'; it has "),
        ("reasoning_gym:chain_sum:train?size=0", "size is 0"),
        ("reasoning_gym:chain_sum:train?size=x", "size is 'x'"),
        ("reasoning_gym:chain_sum:train?seed=3", "the seed is the split's"),
        ("reasoning_gym:chain_sum:train?size", "write options as ?size=500&key=value"),
        ("reasoning_gym:chain_sum:train?min_terms=9&max_terms=2", "refuses its options"),
        (SUMS.format("train", 300).replace("max_digits=2", "max_digits=1"), "distinct ones"),
    ],
)
def test_a_set_that_cannot_be_made_is_refused(spec: str, said: str) -> None:
    with pytest.raises(DataError) as error:
        load_problems(spec)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "response",
    [
        "{}",
        "So <answer> {} </answer>",
        r"So \boxed{{{}}}",
        "<answer>1</answer> <answer>{}</answer>",
    ],
)
def test_the_answer_is_in_a_tag_or_a_box_or_is_the_response(response: str) -> None:
    asked = problem("chain_sum")
    assert grade_gym(asked.id, response.format(asked.answer)).outcome == "correct"
    assert grade_gym(asked.id, response.format("12345678")).outcome == "wrong"


def test_partial_credit_is_wrong() -> None:
    asked = problem("chain_sum")
    assert grade_gym(asked.id, f"It is {asked.answer}").outcome == "wrong"  # reasoning-gym: > 0
    assert grade_gym(asked.id, " ").outcome == "no_answer"


@pytest.mark.parametrize(
    "answer", ["nan", "NaN + nanj", "nan+5i", "inf", "-Infinity", "(nan+nanj)"]
)
def test_nan_is_no_answer_to_arithmetic(answer: str) -> None:
    asked = problem("complex_arithmetic")
    assert grade_gym(asked.id, asked.answer).outcome == "correct"
    assert grade_gym(asked.id, answer).outcome == "wrong"


@pytest.mark.parametrize(
    ("task", "answer"), [("prime_factorization", "two"), ("coin_flip", "1e400")]
)
def test_an_answer_on_which_the_score_raises_is_wrong(task: str, answer: str) -> None:
    grade = grade_gym(problem(task).id, answer)
    assert (grade.outcome, grade.reward) == ("wrong", 0.0)
    assert "cannot be scored" in grade.reason


EVALUATED = [
    *("binary_matrix", "countdown", "intermediate_integration", "n_queens"),
    *("polynomial_multiplication", "puzzle24", "simple_integration", "spiral_matrix"),
    "string_insertion",
]


@pytest.mark.parametrize("task", EVALUATED)
def test_an_answer_is_never_evaluated_as_python(task: str, tmp_path: Path) -> None:
    asked = problem(task)
    assert grade_gym(asked.id, asked.answer).outcome == "correct"
    canary = tmp_path / "canary"
    for code in (
        f"__import__('os').system('touch {canary}')",
        f"open('{canary}', 'w')",
        f"[open('{canary}', 'w')]",
        "exec(chr(112))",
        "oracle_answer",  # eval would find the right answer under this name
        'entry["answer"]',
        "x.__class__",
    ):
        assert grade_gym(asked.id, code).outcome == "wrong", code
    assert not canary.exists()


def test_no_other_score_evaluates_the_answer() -> None:
    """The list was made by reading; a new version of the package must be read again."""
    import reasoning_gym

    root = Path(reasoning_gym.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        text = path.read_text()
        for call in ("eval(answer)", "parse_expr(answer", "exec(answer", "sympify(answer"):
            if call in text:
                found.add(path.stem)
    assert found == set(EVALUATED)


def test_an_own_problem_is_ungraded() -> None:
    grade = grade_gym("p1", "5")
    assert (grade.outcome, grade.reward) == ("error", None)
    with pytest.raises(ValidationError, match="scores only problems of reasoning_gym"):
        RunConfig.model_validate(
            {
                "agents": {"a": {"model": "m"}},
                "method": "gspo",
                "problems": {"train": "embedded:train", "held_out": "embedded:held_out"},
                "verifier": {"type": "reasoning_gym"},
            }
        )


def test_a_pool_grades_by_a_task_s_own_score() -> None:
    problems = load_problems(SUMS.format("held_out", 3))
    with VerifierPool(VerifierConfig(type="reasoning_gym")) as pool:
        grades = pool.grade([(p, p.answer) for p in problems] + [(problems[0], "no")])
    assert [g.outcome for g in grades] == ["correct"] * 3 + ["wrong"]


def test_a_config_file_may_name_tasks(tmp_path: Path) -> None:
    train, held_out = SUMS.format("train", 20), SUMS.format("held_out", 10)
    file = tmp_path / "run.yaml"
    file.write_text(
        f"agents: {{a: {{model: 'embedded:a'}}}}\nmethod: gspo\n"
        f"problems: {{train: '{train}', held_out: '{held_out}'}}\n"
        "verifier: {type: reasoning_gym}\n"
    )
    config = load_run(file)
    assert (config.problems.train, config.problems.held_out) == (train, held_out)  # no paths
