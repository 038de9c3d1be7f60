"""What the benchmarks' task files call; they work under lm_eval's own command, too."""

from pathlib import Path
from typing import Any

from hacpo.benchmarks.catalogue import benchmark as benchmark_of
from hacpo.benchmarks.files import read_set
from hacpo.evals.metrics import problem_metrics
from hacpo.evals.scoring import GradedResponse, documents_of
from hacpo.places import data_folder
from hacpo.task_settings import BENCHMARK_PROMPT
from hacpo.types import UNGRADED
from hacpo.verifiers import grade


def documents(
    benchmark: str,
    data_dir: str | None = None,
    problems: list[dict[str, str]] | None = None,
    **_: object,
) -> dict[str, Any]:
    """lm-eval's data set: `problems`, else the benchmark's file in `data_dir` or HACPO_DATA."""
    if problems is None:
        folder = data_folder(Path(data_dir) if data_dir else None)
        read = read_set(benchmark_of(benchmark), folder)
        problems = [{"id": p.id, "problem": p.problem, "answer": p.answer} for p in read]
    return documents_of(problems)


def text(document: dict[str, str]) -> str:
    """The paper's prompt; under hacpo the engine gets the problem's rendered tokens instead."""
    return BENCHMARK_PROMPT.replace("{problem}", document["problem"])


def target(document: dict[str, str]) -> str:
    return document["answer"]


def process(document: dict[str, str], results: list[list[str]]) -> dict[str, float]:
    """All samples of one problem: its metrics, and the parts without answer and without grade.

    An answer that could not be graded (it took too long) counts as wrong: it is no right one.
    """
    (responses,) = results
    graded = [_graded(response, document["answer"]) for response in responses]
    n = len(graded)
    return {
        **problem_metrics([1.0 if response.reward == 1 else 0.0 for response in graded]),
        "no_answer": sum(response.outcome == "no_answer" for response in graded) / n,
        "ungraded": sum(response.outcome in ("timeout", "error") for response in graded) / n,
    }


def _graded(response: str, answer: str) -> GradedResponse:
    if isinstance(response, GradedResponse):
        return response
    found = grade(response, answer)
    reward = UNGRADED if found.reward is None else found.reward
    return GradedResponse(response, reward, found.outcome)
