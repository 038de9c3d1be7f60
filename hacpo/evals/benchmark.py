"""One benchmark by lm-eval with our engine: resumable, and with the facts that a number needs.

Importing this is cheap; lm_eval (about a second) is imported by the first evaluation.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hacpo.benchmarks.catalogue import ProblemSet
from hacpo.errors import DataError
from hacpo.evals.harness import TASKS, Generate, Grade
from hacpo.evals.records import Records
from hacpo.types import OUTCOMES, Evaluation, Problem, ProblemScore


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkResult:
    """What a model did on one benchmark; the same in shape whatever engine sampled."""

    benchmark: str
    protocol: str
    """`greedy`, or `avg@30`."""
    problems: int
    samples: int
    """Of each problem."""
    metrics: dict[str, float]
    """`avg@1`; or of 30 samples `avg@30`, `best@30`, `best@30_verl`, `pass@k`. Then the fractions
    `no_answer`, `ungraded` and `truncated` of all samples, and `tokens`, a response's mean."""
    stderr: dict[str, float | None]
    """Standard error over problems of each accuracy; None for a single problem."""
    counts: dict[str, int]
    """Samples by outcome."""
    scores: dict[str, list[float]]
    """problem id -> score of each sample; ungraded is 0, as in the metrics."""
    made_with: dict[str, str]
    """Model, tokenizer, data, prompt, verifier with its libraries, engine, limits."""

    @property
    def main(self) -> float:
        """The accuracy that stands for the benchmark: `avg@1` or `avg@30`."""
        return self.metrics[f"avg@{self.samples}"]

    def evaluation(self, agent: str, step: int) -> Evaluation:
        """As one of a run's evaluations."""
        return Evaluation(
            agent=agent,
            step=step,
            task=self.benchmark,
            protocol=self.protocol,
            mean=self.main,
            problems=[ProblemScore(problem_id=p, scores=s) for p, s in self.scores.items()],
            counts=self.counts,
        )


def evaluate_benchmark(
    benchmark: ProblemSet,
    problems: list[Problem],
    *,
    prompts: list[list[int]],
    generate: Generate,
    grade: Grade,
    seed: Callable[[int], int],
    records: Records,
    made_with: Mapping[str, str],
    max_tokens: int,
    chunk_rows: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> BenchmarkResult:
    """Evaluate a model on one benchmark; problems in `records` are not asked again.

    Raises:
        DataError: there are no problems.
    """
    if not problems:
        raise DataError(f"benchmark {benchmark.name}: there are no problems")
    from lm_eval.evaluator import evaluate
    from lm_eval.tasks import TaskManager

    from hacpo.evals.recorded_lm import RecordedLM

    task = f"hacpo_{benchmark.name}"
    rows = [{"id": p.id, "problem": p.problem, "answer": p.answer} for p in problems]
    manager = TaskManager(
        include_path=str(TASKS), include_defaults=False, metadata={"problems": rows}
    )
    loaded: dict[str, Any] = manager.load([task])
    options = {"max_gen_toks": max_tokens}
    loaded["tasks"][task].set_config("generation_kwargs", options, update=True)
    lm = RecordedLM(problems, prompts, generate, grade, seed, records, chunk_rows, progress)
    # simple_evaluate would seed random, numpy and torch; evaluate only draws from random.
    state = random.getstate()
    # bootstrap_iters: 0 would leave out the standard errors, which of a mean are no bootstrap
    output = evaluate(lm, loaded, bootstrap_iters=1, log_samples=False)
    random.setstate(state)
    return _result(benchmark, problems, records, output["results"][task], made_with)


def _result(
    benchmark: ProblemSet,
    problems: list[Problem],
    records: Records,
    results: Mapping[str, Any],
    made_with: Mapping[str, str],
) -> BenchmarkResult:
    metrics: dict[str, float] = {}
    stderr: dict[str, float | None] = {}
    for key, value in results.items():
        name, _, of = key.partition(",")
        if not of:
            continue
        if not name.endswith("_stderr"):
            metrics[name] = float(value)
        elif "@" in name:
            error = float(value) if len(problems) > 1 else None
            stderr[name.removesuffix("_stderr")] = error
    answers = [answer for problem in problems for answer in records[problem.id]]
    metrics["truncated"] = sum(a.finish_reason == "length" for a in answers) / len(answers)
    metrics["tokens"] = sum(a.tokens for a in answers) / len(answers)
    return BenchmarkResult(
        benchmark=benchmark.name,
        protocol=benchmark.protocol,
        problems=len(problems),
        samples=benchmark.samples,
        metrics=metrics,
        stderr=stderr,
        counts=dict.fromkeys(OUTCOMES, 0) | Counter(answer.outcome for answer in answers),
        scores={p.id: [a.score or 0.0 for a in records[p.id]] for p in problems},
        made_with=dict(made_with),
    )
