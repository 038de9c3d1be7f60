"""What a verifier says about one answer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grade:
    """The reward of one answer and how it came about."""

    reward: float | None
    """Usually 0 or 1; None if ungraded."""
    outcome: str
    """One of `hacpo.types.OUTCOMES`."""
    reason: str = ""
    """Why an answer is ungraded, or refused in spite of what it holds, for people."""


def judged(is_correct: bool) -> Grade:
    """Reward 1 or 0."""
    return Grade(1.0, "correct") if is_correct else Grade(0.0, "wrong")


def wrong(reason: str = "") -> Grade:
    """Reward 0."""
    return Grade(0.0, "wrong", reason)


def ungraded(outcome: str, reason: str) -> Grade:
    """No reward: the answer could not be graded."""
    return Grade(None, outcome, reason)


EXACT = Grade(1.0, "exact")
EQUIVALENT = Grade(1.0, "equivalent")
NO_ANSWER = Grade(0.0, "no_answer")
