"""Which part of a response is its answer, and when two answers are the same."""

import time

import pytest

from hacpo.types import Problem
from hacpo.verifiers import Grade
from hacpo.verifiers.boxed import grade_boxed, last_boxed
from hacpo.verifiers.marker import grade_marker

PROBLEM = Problem(id="p", problem="37+58=", answer="95")


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        ("7+8+0=5,1.3+5+1=9,0#95", "correct"),
        ("#95 \n", "correct"),
        ("#12 no, #95", "correct"),
        ("#95 no, #12", "wrong"),
        ("#95.", "wrong"),
        ("#095", "wrong"),
        ("#", "wrong"),
        ("95", "no_answer"),
        ("", "no_answer"),
    ],
)
def test_the_text_after_the_last_marker_is_the_answer(response: str, outcome: str) -> None:
    grade = grade_marker("95", response, "#")
    assert (grade.outcome, grade.reward) == (outcome, float(outcome == "correct"))


def test_a_marker_may_be_several_characters() -> None:
    assert grade_marker("95", "# of steps: 2 #### 95", "####").outcome == "correct"


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{95}.", "95"),
        (r"\boxed{1} then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{5} and \boxed{6", "5"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed {5}", "5"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\text{a \} b}}", r"\text{a \} b}"),
        (r"}} \boxed{5}", "5"),
        (r"\boxed{}", ""),
        (r"\boxed5", None),
        ("5", None),
        (r"\boxed{5", None),
    ],
)
def test_the_last_balanced_box_is_found(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


def test_a_box_is_found_in_time_linear_in_the_length() -> None:
    start = time.perf_counter()
    assert last_boxed(r"\boxed{" * 15_000) is None
    assert last_boxed(r"\boxed{" * 8_000 + "}" * 8_000) == ""
    assert time.perf_counter() - start < 2  # a quadratic search takes minutes


@pytest.mark.parametrize(
    ("answer", "content", "outcome"),
    [
        (r"\frac{1}{2}", r"\dfrac{1}{2}", "correct"),
        (r"\dfrac{1}{2}", r"\tfrac 12", "wrong"),
        ("(1,2)", r"\left( 1,\, 2 \right)", "correct"),
        ("18", r"\$18.", "correct"),
        ("18", "$18$", "correct"),
        (r"\leftarrow", "arrow", "wrong"),
        ("5", "5.0", "wrong"),
        ("1.5", "15", "wrong"),
    ],
)
def test_boxed_answers_are_compared_after_light_cleaning(
    answer: str, content: str, outcome: str
) -> None:
    assert grade_boxed(answer, rf"It is \boxed{{{content}}}").outcome == outcome


def test_a_response_without_a_box_has_no_answer() -> None:
    assert grade_boxed("95", "It is 95.") == Grade(0.0, "no_answer")
