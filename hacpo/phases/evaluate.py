"""Phase 4: held-out problems, through lm-eval, with the engine that is already in memory.

Before and after training also the benchmarks that the config asks for (`hacpo.phases.benchmarks`).
"""

import dataclasses
from pathlib import Path

from hacpo.agents import Agent
from hacpo.evals.harness import GREEDY, TASK, evaluate_problems
from hacpo.evals.metrics import mean_metrics
from hacpo.ledger import read_json, write_json
from hacpo.phases.benchmarks import evaluate_benchmarks
from hacpo.phases.grading import grade_rows
from hacpo.run import Run, open_run, seed_for
from hacpo.types import Evaluation, FinishReason, Problem, ProblemScore


def evaluate(run_id: str, step: int, agents: tuple[str, ...]) -> None:
    """Evaluate agents after `step` completed steps; one whose result is on disk is done.

    The untrained model (step 0) is looked up first: it is the same in every cell.
    """
    run = open_run(run_id)
    for name in agents:
        path = run.ledger.folder / "evaluations" / f"{step:06d}.{name}.json"
        evaluations = _read(path)
        if evaluations is None:
            evaluations = _earlier(run, name) if step == 0 else None
            if evaluations is None:
                evaluations = _evaluate(run, step, run.agents[name])
            write_json(path, [dataclasses.asdict(e) for e in evaluations])
        if run.config.evaluate.benchmarks and step in (0, run.config.steps):
            benchmarks = evaluate_benchmarks(run, step, run.agents[name])
        else:
            benchmarks = []
        for evaluation in [*evaluations, *benchmarks]:
            run.recorder.evaluation(evaluation)
        more = {e.task: mean_metrics([p.scores for p in e.problems]) for e in benchmarks}
        run.tracker.log_evaluation(name, step, [*evaluations, *benchmarks], more)


def read_evaluations(folder: Path, step: int, agent: str) -> list[Evaluation]:
    """What `evaluate` wrote into a run's folder."""
    return _read(folder / "evaluations" / f"{step:06d}.{agent}.json") or []


def protocols(run: Run) -> list[str]:
    settings = run.config.evaluate
    return [f"avg@{settings.samples}"] * (settings.samples > 0) + [GREEDY] * settings.greedy


def _evaluate(run: Run, step: int, agent: Agent) -> list[Evaluation]:
    config = run.config

    def grade(rows: list[tuple[Problem, str, FinishReason]]) -> list[tuple[float, str]]:
        return [(reward, outcome) for reward, outcome, _ in grade_rows(run, rows)]

    with agent.sampling() as engine:
        return evaluate_problems(
            run.held_out,
            render=agent.tokens.render,
            generate=engine.generate,
            grade=grade,
            agent=agent.name,
            step=step,
            samples=config.evaluate.samples,
            greedy=config.evaluate.greedy,
            max_tokens=config.evaluate.max_response_tokens or config.rollout.max_response_tokens,
            seed=seed_for("evaluate"),  # the same draws for every method, seed and step
        )


def _earlier(run: Run, name: str) -> list[Evaluation] | None:
    found = [run.recorder.earlier_evaluation(name, TASK, p) for p in protocols(run)]
    return [e for e in found if e is not None] if all(found) else None


def _read(path: Path) -> list[Evaluation] | None:
    if not path.exists():
        return None
    evaluations = []
    for data in read_json(path):
        problems = [ProblemScore(**problem) for problem in data.pop("problems")]
        evaluations.append(Evaluation(**data, problems=problems))
    return evaluations
