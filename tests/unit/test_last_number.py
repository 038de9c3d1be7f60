"""The verifier `last_number`: the last number of a response, by value."""

import time
import tracemalloc

import pytest

from hacpo.task_settings import VerifierConfig
from hacpo.types import Problem
from hacpo.verifiers import VerifierPool
from hacpo.verifiers.last_number import grade_last_number, last_number


@pytest.mark.parametrize(
    ("answer", "response", "outcome"),
    [
        ("7", "7", "correct"),
        ("7", "3 + 4 = 7.", "correct"),
        ("7", "7 is 3 + 4", "wrong"),
        ("7", "The answer is seven", "no_answer"),
        ("7", "", "no_answer"),
        ("7", "... , - $ %", "no_answer"),
        ("7", "007", "correct"),
        ("7", "7.000", "correct"),
        ("7", "7,", "correct"),
        ("7", "**7**\n", "correct"),
        ("7", "7 apples", "correct"),
        ("0", "-0.00", "correct"),
        ("0.5", ".5", "correct"),
        ("0.5", "-.5", "wrong"),
        ("-0.5", "-.5", "correct"),
        ("0.5", "...5", "wrong"),
        ("5", "...5", "correct"),
        ("1234.5", "So it is $1,234.50.", "correct"),
        ("1,234.50", "1234.5", "correct"),
        ("1234567", "1,234,567", "correct"),
        ("2", "1,2", "correct"),
        ("5", "1,234,5", "correct"),
        ("567", "1234,567", "correct"),
        ("3.5", "1,2,3.5", "correct"),
        ("3", "version 1.2.3", "correct"),
        ("50", "50%", "correct"),
        ("50%", "50", "correct"),
        ("0.5", "50%", "wrong"),
        ("-5", "-5", "correct"),
        ("-5", "x = -5", "correct"),
        ("-5", "(-5)", "correct"),
        ("-5", "-$5", "correct"),
        ("-5", "$-5", "correct"),
        ("-5", "\N{MINUS SIGN}5", "correct"),
        ("5", "10-5", "correct"),
        ("5", "x-5", "correct"),
        ("5", "(2)-5", "correct"),
        ("5", "10 - 5", "correct"),
        ("5", "--5", "correct"),
        ("5", "-5", "wrong"),
        ("100000", "1e5", "correct"),
        ("0.00012", "1.2E-4", "correct"),
        ("-1500", "-1.5e+3", "correct"),
        ("5", "e5", "correct"),
        ("5.5", "1e5.5", "correct"),
        ("999999999", "1e999999999", "wrong"),
        ("10", "1e-999999999", "wrong"),
        ("#### 72", "So 72", "correct"),
        ("7", "\N{ARABIC-INDIC DIGIT SEVEN}", "no_answer"),
        ("7", "\N{FULLWIDTH DIGIT SEVEN}\N{SUPERSCRIPT TWO}", "no_answer"),
        ("7", "7\N{SUPERSCRIPT TWO}", "correct"),
        ("7", "\x007\ud800", "correct"),
    ],
)
def test_the_last_number_is_compared_by_value(answer: str, response: str, outcome: str) -> None:
    assert grade_last_number(answer, response).outcome == outcome


def test_an_answer_that_is_no_number_leaves_the_row_ungraded() -> None:
    grade = grade_last_number("seven", "7")
    assert (grade.outcome, grade.reason) == ("error", "the problem's answer 'seven' is no number")


@pytest.mark.parametrize(
    "text",
    [
        "9" * 100_000,
        "1" + ",234" * 25_000 + ",5",
        "." * 99_999 + "5",
        "," * 99_999 + "5",
        "1." * 50_000 + "5",
        "-" * 99_999 + "5",
        "1e" * 50_000 + "5",
        "1e" + "9" * 99_998,
        "5" + "." * 99_999,
        "5" + "\N{FULLWIDTH DIGIT SEVEN}" * 99_999,
    ],
)
def test_hostile_text_takes_neither_long_nor_much(text: str) -> None:
    tracemalloc.start()
    start = time.perf_counter()
    assert last_number(text) is not None
    seconds, (_, peak) = time.perf_counter() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 1  # 0.05 s; what is quadratic takes minutes
    assert peak < 20_000_000


def test_numbers_that_differ_far_behind_the_point_are_different() -> None:
    threes = "0." + "3" * 50_000
    assert grade_last_number(threes, threes + "0").outcome == "correct"
    assert grade_last_number(threes, threes + "4").outcome == "wrong"


def test_a_pool_grades_by_the_last_number() -> None:
    problem = Problem(id="p", problem="3 + 4", answer="7")
    with VerifierPool(VerifierConfig(type="last_number")) as pool:
        grades = pool.grade([(problem, text) for text in ("It is 7.", "8", "seven")])
    assert [g.outcome for g in grades] == ["correct", "wrong", "no_answer"]
