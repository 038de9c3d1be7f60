"""A run as tests tell MLflow of it, and what MLflow then has."""

from typing import Any

from hacpo.tracking import Tracker


def begin(
    tracker: Tracker,
    cell: str,
    sweep: str = "night",
    rate: float = 1e-6,
    experiment: str = "night",
) -> None:
    tracker.start(
        experiment=experiment,
        run_name="hacpo a+b s0",
        params={"method": "hacpo", "update": {"learning_rate": rate}},
        tags={
            "hacpo.cell": cell,
            "hacpo.sweep": sweep,
            "hacpo.method": "hacpo",
            "hacpo.seed": 0,
            "hacpo.combination": "q+l",
        },
        agents={"a": {"hacpo.model": "q"}, "b": {"hacpo.model": "l"}},
        config_text="steps: 3\n",
    )


def reward(agent: str, step: int) -> float:
    return (step + 1) / 7 + (agent == "b")


def log(tracker: Tracker, steps: range) -> None:
    for step in steps:
        tracker.log_step(
            step,
            {agent: {"reward/mean": reward(agent, step), "time/step": 0.5} for agent in "ab"},
            {f"agent_{agent}/reward": reward(agent, step) for agent in "ab"},
        )


def history(client: Any, run_id: str, name: str) -> list[tuple[int, float]]:
    points = client.get_metric_history(run_id, name)
    return [(point.step, point.value) for point in sorted(points, key=lambda p: p.timestamp)]


def runs_of(client: Any, cell: str) -> list[Any]:
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return client.search_runs(experiments, f"tags.`hacpo.cell` = '{cell}'")
