"""What a verifier says about one answer."""

from dataclasses import dataclass

from hacpo.types import UNGRADED


@dataclass(frozen=True, slots=True)
class Grade:
    """The reward of one answer and how it came about."""

    reward: float
    """Usually 0 or 1; NaN if ungraded."""
    outcome: str
    """correct, wrong, no_answer, timeout or error."""
    reason: str = ""
    """Why an answer is ungraded, for people."""


def judged(is_correct: bool) -> Grade:
    """Reward 1 or 0."""
    return Grade(1.0, "correct") if is_correct else Grade(0.0, "wrong")


def ungraded(outcome: str, reason: str) -> Grade:
    """No reward: the answer could not be graded."""
    return Grade(UNGRADED, outcome, reason)


NO_ANSWER = Grade(0.0, "no_answer")
