"""What the task files call: problem to lm-eval's document, graded responses to scores."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any


class GradedResponse(str):
    """A response that carries its grade through lm-eval, so that grading can be one batch.

    lm-eval hands responses to `process` one document at a time; they were graded together before.
    """

    reward: float
    outcome: str

    def __new__(cls, text: str, reward: float, outcome: str) -> "GradedResponse":
        response = super().__new__(cls, text)
        response.reward = reward
        response.outcome = outcome
        return response


def documents(problems: list[dict[str, str]], **_: object) -> dict[str, Any]:
    """lm-eval's data set; `problems` comes from the metadata of the task manager."""
    return documents_of(problems)


def documents_of(problems: list[dict[str, str]]) -> dict[str, Any]:
    """Rows of id, problem and answer as lm-eval takes them."""
    from datasets import Dataset  # type: ignore[import-untyped]

    return {"test": Dataset.from_list(problems)}


def text(document: dict[str, str]) -> str:
    """For lm-eval's records only: the engine gets the problem's rendered tokens."""
    return document["problem"]


def target(document: dict[str, str]) -> str:
    return document["answer"]


def process(
    document: dict[str, str], results: list[list[GradedResponse]]
) -> dict[str, list[float] | list[str]]:
    """All repeats of one document: `results` holds one request's responses."""
    (responses,) = results
    return {
        "avg": [response.reward for response in responses],
        "outcomes": [response.outcome for response in responses],
    }


def mean_of_graded(scores: Iterable[list[float]]) -> float:
    """Mean over all graded samples of all problems; NaN (ungraded) if there are none."""
    graded = [score for problem in scores for score in problem if not math.isnan(score)]
    return math.fsum(graded) / len(graded) if graded else math.nan


def count(outcomes: Iterable[list[str]]) -> dict[str, int]:
    """Samples by outcome."""
    return dict(Counter(outcome for problem in outcomes for outcome in problem))
