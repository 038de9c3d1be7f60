import json
from pathlib import Path

import pytest

from hacpo.errors import DataError
from hacpo.problems import check_disjoint, load_problems, problems_digest, step_problems
from hacpo.problems.arithmetic import CHARACTERS, problem_of, solution_text, splits
from hacpo.types import Problem

ALL_SUMS = [*splits()[0], *splits()[1]]


def write(folder: Path, *rows: object) -> str:
    path = folder / "problems.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def numbered(count: int) -> list[Problem]:
    return [Problem(id=f"p{i}", problem=f"question {i}", answer=str(i)) for i in range(count)]


@pytest.mark.parametrize(
    ("numbers", "careful", "careless"),
    [
        # 7 + 8 = 15: digit 5, carry 1; 3 + 5 + 1 = 9. Without the carry 3 + 5 + 0 = 8
        ((37, "+", 58), "7+8+0=5,1.3+5+1=9,0#95", "7+8+0=5,0.3+5+0=8,0#85"),
        # 2 - 8 = -6: digit 4, borrow 1; 7 - 4 - 1 = 2. Without the borrow 7 - 4 - 0 = 3
        ((72, "-", 48), "2-8-0=4,1.7-4-1=2,0#24", "2-8-0=4,0.7-4-0=3,0#34"),
        # a result of one digit: 32 - 29 = 3
        ((32, "-", 29), "2-9-0=3,1.3-2-1=0,0#3", "2-9-0=3,0.3-2-0=1,0#13"),
        # 19 + 11: 9 + 1 = 10
        ((19, "+", 11), "9+1+0=0,1.1+1+1=3,0#30", "9+1+0=0,0.1+1+0=2,0#20"),
    ],
)
def test_solutions_written_by_hand(
    numbers: tuple[int, str, int], careful: str, careless: str
) -> None:
    assert solution_text(numbers) == careful
    assert solution_text(numbers, careless=True) == careless


def test_a_problem_has_the_sum_as_id_and_its_result_as_answer() -> None:
    assert problem_of((37, "+", 58)) == Problem(id="37+58", problem="37+58=", answer="95")
    assert problem_of((72, "-", 48)) == Problem(id="72-48", problem="72-48=", answer="24")


def test_every_careful_solution_is_right_and_every_careless_one_wrong() -> None:
    for numbers in ALL_SUMS:
        answer = problem_of(numbers).answer
        assert solution_text(numbers).rpartition("#")[2] == answer
        assert solution_text(numbers, careless=True).rpartition("#")[2] != answer


def test_texts_use_the_known_characters_only() -> None:
    for numbers in ALL_SUMS:
        assert set(problem_of(numbers).problem + solution_text(numbers)) <= set(CHARACTERS)


def test_the_embedded_problems_are_all_sums_with_a_carry_out_of_the_ones() -> None:
    # 45 pairs of ones carry (1+9, 2+8, 2+9, ...); tens from 1 whose sum is at most 8: 28 pairs
    additions = 45 * 28
    # 45 pairs of ones borrow; tens from 1, the first larger: 36 pairs
    subtractions = 45 * 36
    operators = [operator for _, operator, _ in ALL_SUMS]
    assert (operators.count("+"), operators.count("-")) == (additions, subtractions)


def test_held_out_problems_are_half_additions_and_never_trained_on() -> None:
    train, held_out = load_problems("embedded:train"), load_problems("embedded:held_out")
    assert [sum("+" in p.id for p in held_out), len(held_out)] == [128, 256]
    assert not {p.problem for p in train} & {p.problem for p in held_out}
    assert len({p.id for p in train + held_out}) == len(ALL_SUMS)
    check_disjoint(train, held_out)


def test_embedded_problems_are_the_same_on_every_machine() -> None:
    digests = {s: problems_digest(load_problems(f"embedded:{s}")) for s in ("train", "held_out")}
    assert digests == {
        "train": "936ea49a66588bdf65b77606ce98394a2f5ddc4589e5dd0849fe84365f8bb5cd",
        "held_out": "f02830dd690f05f8753d8f43016c38a8a6932c4f4761a75feb318912ae5fed97",
    }


def test_the_digest_depends_on_every_field_and_the_order() -> None:
    one, two = numbered(2)
    changed = [
        [two, one],
        [one],
        [Problem(id="q", problem=one.problem, answer=one.answer), two],
        [Problem(id=one.id, problem="q", answer=one.answer), two],
        [Problem(id=one.id, problem=one.problem, answer="q"), two],
        # the boundary between fields counts
        [Problem(id=one.id + '", "', problem=one.problem, answer=one.answer), two],
    ]
    digests = {problems_digest(problems) for problems in [[one, two], *changed]}
    assert len(digests) == 1 + len(changed)


def test_a_file_is_read_in_its_order_without_blank_lines_and_further_keys(tmp_path: Path) -> None:
    row = {"id": "z", "problem": "Sum of \u03c0 and 1?\n", "answer": "\u03c0+1"}
    spec = write(tmp_path, row, "", "   ", {"id": "a", "problem": "1?", "answer": "1", "level": 5})
    assert load_problems(spec) == [
        Problem(id="z", problem="Sum of \u03c0 and 1?\n", answer="\u03c0+1"),
        Problem(id="a", problem="1?", answer="1"),
    ]


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "1", "problem": "x", "answer": "2"}\r\n\r\n')
    assert load_problems(str(path)) == [Problem(id="1", problem="x", answer="2")]


GOOD = {"id": "1", "problem": "x", "answer": "2"}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], ["holds no problems", '"answer"']),
        (["", " "], ["holds no problems"]),
        ([GOOD, "{not json"], ["line 2", "is not JSON"]),
        ([GOOD, "[" * 100_000], ["line 2"]),
        (['"text"'], ["line 1", "not an object"]),
        ([{"id": "1", "problem": "x"}], ["line 1", "'answer' is missing"]),
        ([{**GOOD, "answer": 95}], ["line 1", "answer is 95, not a string", '"answer": "95"']),
        ([{**GOOD, "id": 0.5}], ["line 1", 'quote it: "id": "0.5"']),
        ([{**GOOD, "answer": None}], ["line 1", "answer is null, not a string"]),
        ([{**GOOD, "answer": True}], ["line 1", "answer is true, not a string"]),
        ([{**GOOD, "problem": ["x"]}], ["line 1", "not a string"]),
        ([{**GOOD, "problem": " "}], ["line 1", "problem is empty"]),
        ([{**GOOD, "problem": "\ud800"}], ["line 1", "surrogate"]),
        ([GOOD, "", GOOD], ["line 3", "id '1' already stands on line 1"]),
    ],
)
def test_a_bad_file_is_refused_with_its_name_the_line_and_a_remedy(
    tmp_path: Path, rows: list[object], said: list[str]
) -> None:
    spec = write(tmp_path, *rows)
    with pytest.raises(DataError) as error:
        load_problems(spec)
    message = str(error.value)
    assert message.startswith(spec)
    assert "\n" not in message
    assert len(message) < len(spec) + 200
    for part in said:
        assert part in message


def test_a_file_in_another_encoding_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + '\n{"id": "\u00e9"}'.encode("latin-1"))
    with pytest.raises(DataError, match="line 2: byte 0xe9 is not UTF-8; save"):
        load_problems(str(path))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("missing.jsonl", "missing.jsonl: no such problem file"),
        ("embedded:trian", "embedded:train, embedded:held_out"),
        (".", "cannot be read"),
    ],
)
def test_a_name_without_problems_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=said):
        load_problems(spec)


def test_a_held_out_text_that_is_trained_on_is_refused_under_any_id() -> None:
    train = numbered(4)
    held_out = [
        Problem(id="x", problem="question 9", answer="9"),
        Problem(id="y", problem=" question  2\n", answer="2"),
    ]
    with pytest.raises(DataError, match=r"1 of 2 held-out problems .* 'y' \(train id 'p2'\)"):
        check_disjoint(train, held_out)


def test_equal_ids_of_different_problems_are_no_overlap() -> None:
    check_disjoint(numbered(2), [Problem(id="p0", problem="another", answer="1")])


def test_an_epoch_shows_every_problem_once_and_the_next_one_in_another_order() -> None:
    problems = numbered(12)
    epochs = [
        [p.id for step in range(start, start + 4) for p in step_problems(problems, step, 3, 0)]
        for start in (0, 4, 8)
    ]
    for epoch in epochs:
        assert sorted(epoch) == sorted(p.id for p in problems)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_only_whole_steps_are_taken_from_an_epoch() -> None:
    problems = numbered(11)
    # 11 problems give 2 steps of 4; step 2 opens the next epoch
    first = [p.id for step in (0, 1) for p in step_problems(problems, step, 4, 0)]
    assert len(set(first)) == 8
    second = [p.id for step in (2, 3) for p in step_problems(problems, step, 4, 0)]
    assert len(set(second)) == 8
    assert set(first) != set(second)


def test_a_step_is_a_pure_function_of_seed_and_step() -> None:
    problems = numbered(50)
    forward = [step_problems(problems, step, 8, 3) for step in range(30)]
    backward = [step_problems(problems, step, 8, 3) for step in reversed(range(30))]
    assert forward == backward[::-1]
    assert forward[0] != step_problems(problems, 0, 8, 4)


def test_the_order_is_the_same_in_every_version() -> None:
    ids = [p.id for p in step_problems(numbered(10), 7, 4, 1)]
    assert ids == ["p3", "p8", "p9", "p7"]


def test_fewer_problems_than_a_step_needs_are_refused() -> None:
    with pytest.raises(DataError, match="3 usable problems, but a step takes 4: lower update"):
        step_problems(numbered(3), 0, 4, 0)


def test_one_digit_sums_keep_both_orders_on_one_side() -> None:
    train, held_out = load_problems("sums:train"), load_problems("sums:held_out")
    assert (len(train), len(held_out)) == (75, 25)
    check_disjoint(train, held_out)
    sides = [{frozenset(p.problem.split(" + ")) for p in side} for side in (train, held_out)]
    assert not sides[0] & sides[1]
    assert all(int(p.answer) == sum(map(int, p.problem.split(" + "))) for p in train + held_out)
    assert held_out[0].problem == "0 + 4"  # the same on every machine
    with pytest.raises(DataError, match=r"choose embedded:train, .*sums:held_out or a JSONL"):
        load_problems("sums:test")
