"""The files that a run leaves, written through the ledger with numbers of the test's own choice."""

from pathlib import Path

from hacpo.ledger import Ledger
from hacpo.types import AgentStep, Rollout, StepSummary


def record_step(
    folder: Path,
    step: int,
    metrics: dict[str, dict[str, float]],
    rewards: dict[str, dict[str, list[float]]] | None = None,
    *,
    capability: dict[str, float] | None = None,
    tokens: int = 10,
) -> None:
    """Write one step of a run.

    Args:
        folder: of the run.
        step: from 0.
        metrics: agent -> metrics of the step.
        rewards: agent -> problem -> rewards of its responses.
        capability: of each agent; 0.5 if not given.
        tokens: of every response.
    """
    ledger = Ledger(folder)
    agents = {}
    for agent, own in metrics.items():
        graded = (rewards or {}).get(agent, {})
        rollouts = [
            Rollout(
                id=f"{agent} {problem} {i}",
                problem_id=problem,
                source=agent,
                token_ids=[1] * tokens,
                text="",
                finish_reason="stop",
                sampler_logprobs=[0.0] * tokens,
                source_logprobs=[0.0] * tokens,
                entropy=0.0,
            )
            for problem, values in graded.items()
            for i in range(len(values))
        ]
        values = [value for values in graded.values() for value in values]
        if rewards is not None:
            ledger.write_rollouts(step, agent, rollouts)
            grades = {r.id: (v, "", "") for r, v in zip(rollouts, values, strict=True)}
            ledger.write_grades(step, agent, grades)
        agents[agent] = AgentStep(
            agent=agent,
            reward_mean=sum(values) / len(values) if values else 0.0,
            capability=(capability or {}).get(agent, 0.5),
            rollouts=len(values),
            tokens=tokens * len(values),
            metrics={"rollouts/consumed": float(len(values) * len(metrics)), **own},
        )
    ledger.write_summary(StepSummary(run_id=folder.name, step=step, agents=agents, seconds=1.0))
