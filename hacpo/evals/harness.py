"""Held-out evaluation by lm-eval: one agent, its own engine, one batch of grading.

Importing this is cheap; lm_eval (about a second) is imported by the first evaluation.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from hacpo.errors import DataError
from hacpo.types import OUTCOMES, Evaluation, FinishReason, Problem, ProblemScore

TASK = "held_out"
GREEDY = "greedy"
TASKS = Path(__file__).parent / "tasks"


class Sample(Protocol):
    """What is read of one sampled response."""

    @property
    def text(self) -> str: ...
    @property
    def finish_reason(self) -> FinishReason: ...
    @property
    def token_ids(self) -> list[int]: ...


class Generate(Protocol):
    """An engine's call: for each prompt `num_samples` responses; temperature 0 is greedy."""

    def __call__(
        self,
        prompts: list[list[int]],
        num_samples: int,
        *,
        temperature: float,
        max_tokens: int,
        seed: int,
    ) -> Sequence[Sequence[Sample]]: ...


Grade = Callable[[list[tuple[Problem, str, FinishReason]]], list[tuple[float, str]]]
"""All responses at once -> their rewards (NaN if ungraded) and outcomes, in the same order."""


def evaluate_problems(
    problems: list[Problem],
    *,
    render: Callable[[Problem], list[int]],
    generate: Generate,
    grade: Grade,
    agent: str,
    step: int,
    samples: int,
    greedy: bool,
    max_tokens: int,
    seed: int,
) -> list[Evaluation]:
    """Evaluate one agent: `avg@{samples}` if samples > 0, then `greedy` if asked.

    `generate` is called once for each protocol, with all prompts; `grade` once with all responses.
    Ungraded samples (NaN) stay in the scores and count by their outcome, but not in the mean.
    Global random state is left alone.

    Raises:
        DataError: there are no problems.
    """
    if not problems:
        raise DataError("there are no held-out problems to evaluate on: check problems.held_out")
    repeats = {"held_out": samples} if samples else {}
    if greedy:
        repeats["held_out_greedy"] = 1
    if not repeats:
        return []

    from lm_eval.evaluator import evaluate

    from hacpo.evals.engine_lm import EngineLM

    lm = EngineLM(problems, [render(problem) for problem in problems], generate, grade, seed)
    # simple_evaluate would seed random, numpy and torch; evaluate only draws from random.
    state = random.getstate()
    tasks = _load_tasks(problems, repeats, max_tokens)
    output = evaluate(lm, tasks, bootstrap_iters=0, log_samples=True)
    random.setstate(state)
    return [
        _evaluation(
            output["results"][task],
            output["samples"][task],
            agent=agent,
            step=step,
            protocol=GREEDY if task == "held_out_greedy" else f"avg@{count}",
        )
        for task, count in repeats.items()
    ]


def _load_tasks(
    problems: list[Problem], repeats: dict[str, int], max_tokens: int
) -> dict[str, Any]:
    from lm_eval.tasks import TaskManager

    rows = [
        {"id": problem.id, "problem": problem.problem, "answer": problem.answer}
        for problem in problems
    ]
    # include_defaults would read 14,000 task files: 7 s instead of 7 ms.
    manager = TaskManager(
        include_path=str(TASKS), include_defaults=False, metadata={"problems": rows}
    )
    loaded: dict[str, Any] = manager.load(list(repeats))
    for name, task in loaded["tasks"].items():
        task.set_config("repeats", repeats[name])
        task.set_config("generation_kwargs", {"max_gen_toks": max_tokens}, update=True)
    return loaded


def _evaluation(
    results: dict[str, Any],
    documents: list[dict[str, Any]],
    *,
    agent: str,
    step: int,
    protocol: str,
) -> Evaluation:
    return Evaluation(
        agent=agent,
        step=step,
        task=TASK,
        protocol=protocol,
        mean=results["avg,all"],
        problems=[
            ProblemScore(problem_id=document["doc"]["id"], scores=document["avg"])
            for document in documents
        ],
        counts=dict.fromkeys(OUTCOMES, 0) | results["outcomes,all"],
    )
