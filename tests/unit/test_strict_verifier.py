r"""Strict mode: verl's boxed match, expectations from its description by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hacpo.task_settings import VerifierConfig
from hacpo.types import Problem
from hacpo.verifiers import VerifierPool, grade


@pytest.mark.parametrize(
    ("gold", "response", "outcome"),
    [
        ("5", r"\boxed{5}", "exact"),
        ("5", r"\boxed{4} \boxed{5}", "exact"),
        ("5", r"\boxed{5} \boxed{4}", "wrong"),
        ("5", r"\boxed{ 5 }", "exact"),  # spaces go
        ("5", r"It is $\boxed 5$.", "exact"),  # up to the dollar
        ("5", r"It is \boxed 5.", "wrong"),  # 5. to the end
        (r"\frac{1}{2}", r"\boxed{\dfrac{1}{2}}", "exact"),
        (r"\frac{1}{2}", r"\boxed{\tfrac12}", "exact"),
        (r"\frac{1}{2}", r"\boxed{0.5}", "exact"),
        (r"\frac{1}{2}", r"\boxed{.5}", "exact"),
        (r"\frac{1}{2}", r"\boxed{1/2}", "exact"),
        (r"\frac{1}{4}", r"\boxed{0.25}", "wrong"),  # 0.5 alone is known
        (r"\frac{1}{2}", r"\boxed{2/4}", "wrong"),
        (r"\sqrt{2}", r"\boxed{\sqrt2}", "exact"),
        (r"\frac{\sqrt{2}}{2}", r"\boxed{\frac{1}{\sqrt{2}}}", "wrong"),
        ("(1,2)", r"\boxed{\left(1, 2\right)}", "exact"),
        ("90", r"\boxed{90^\circ}", "exact"),
        ("90", r"\boxed{90^{\circ}}", "exact"),
        ("18", r"\boxed{\$18}", "exact"),
        ("50", r"\boxed{50\%}", "exact"),
        ("5", r"\boxed{5\text{ cm}}", "exact"),
        ("5", r"\boxed{5\,\mathrm{cm}^2}", "wrong"),
        ("5", r"\boxed{x = 5}", "exact"),
        ("5", r"\boxed{area = 5}", "wrong"),  # a name of at most two characters
        ("7", r"\boxed{6=7}", "exact"),  # the same rule, and its hole
        ("7", r"\boxed{1=2=7}", "wrong"),
        ("1000", r"\boxed{1,000}", "wrong"),
        ("5", r"\boxed{5.0}", "wrong"),
        ("5", r"\boxed{5.}", "wrong"),
        (r"\{1,2\}", r"\boxed{\{2,1\}}", "wrong"),
        (r"\pi", "\\boxed{π}", "wrong"),
        ("5", "The answer is 5.", "no_answer"),
        ("5", r"\boxed{5", "no_answer"),
        ("5", r"\fbox{5}", "no_answer"),
        ("5", r"\boxed{\boxed{5}}", "exact"),
        ("5", "", "no_answer"),
        (r"\sqrt", r"\boxed{\sqrt}", "exact"),  # cannot be cleaned: as they stand
        (r"\sqrt", r"\boxed{\sqrt }", "wrong"),
    ],
)
def test_strict_is_the_boxed_match_of_verl(gold: str, response: str, outcome: str) -> None:
    graded = grade(response, gold, strict=True)
    assert (graded.outcome, graded.reward) == (outcome, float(outcome == "exact"))


def test_a_pool_may_be_strict() -> None:
    with VerifierPool(VerifierConfig(type="math", strict=True)) as pool:
        problem = Problem(id="p", problem="", answer="1000")
        outcomes = [g.outcome for g in pool.grade([(problem, r"\boxed{1,000}"), (problem, "")])]
    assert outcomes == ["wrong", "no_answer"]


def test_only_type_math_is_strict() -> None:
    with pytest.raises(ValueError, match="only type math takes strict: true, not boxed"):
        VerifierConfig(type="boxed", strict=True)


@settings(max_examples=300)
@given(st.text(r"\boxedfracsqrt{}$ =5/.%^12", max_size=60), st.text(max_size=8))
def test_no_text_makes_strict_grading_fail(response: str, gold: str) -> None:
    assert grade(response, gold, strict=True).outcome in ("exact", "wrong", "no_answer")
