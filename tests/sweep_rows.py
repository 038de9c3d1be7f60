"""A sweep's rows as the registry gives them, for tests of the report."""

from dataclasses import replace
from typing import Any

from hacpo.registry import AgentView, CellView, CostRow, EvaluationRow
from hacpo.report import Report
from hacpo.report.asked import wanted_by_grid
from hacpo.report.names import identities
from hacpo.report.points import Facts
from hacpo.report.report import build_report
from hacpo.report.table import ReportRow


class Sweep:
    """Plain rows as the registry gives them, for a grid over agents of equal names and models."""

    def __init__(self, methods: list[str], seeds: list[int], agents: str = "ab") -> None:
        self.config: dict[str, Any] = {
            "agents": {agent: {"model": f"m_{agent}"} for agent in agents},
            "grid": {"combinations": [list(agents)], "methods": methods, "seeds": seeds},
            "steps": 60,
            "evaluate": {"samples": 8, "greedy": True},
        }
        self.cells: list[CellView] = []
        self.evaluations: list[EvaluationRow] = []
        self.costs: list[CostRow] = []

    def cell(self, method: str, combination: str, seed: int, **facts: Any) -> CellView:
        agents = {
            name: AgentView(
                agent=name,
                model=f"m_{name}",
                identity=f"id_{name}",
                mlflow_run_id=None,
                reward=None,
                reward_recent=None,
                capability=None,
            )
            for name in combination.split("+")
        }
        label = f"{method} {combination} s{seed}"
        view = CellView(
            key=label,
            label=label,
            method=method,
            combination=combination,
            seed=seed,
            state="done",
            stale=False,
            attempts=1,
            max_attempts=3,
            steps_done=60,
            steps_total=60,
            activity="",
            rollouts=0,
            rollouts_planned=0,
            seconds_per_step=None,
            agents=agents,
            error=None,
            error_kind=None,
            holder=None,
            gpus=1,
            not_before=None,
            host=None,
            pid=None,
            device=None,
            code_version=None,
            heartbeat_age=None,
            started=None,
            ended=None,
            prefect_flow_run_id=None,
            mlflow_run_id=None,
        )
        view = replace(view, **facts)
        self.cells.append(view)
        return view

    def scores(
        self,
        cell: CellView,
        agent: str,
        before: float,
        after: float,
        protocol: str = "avg@8",
        task: str = "held_out",
    ) -> None:
        for step, mean in ((0, before), (60, after)):
            self.evaluations.append(
                EvaluationRow(
                    cell_key=cell.key,
                    label=cell.label,
                    method=cell.method,
                    seed=cell.seed,
                    combination=cell.combination,
                    agent=agent,
                    identity="",
                    model="",
                    step=step,
                    task=task,
                    protocol=protocol,
                    mean=mean,
                    counts={},
                )
            )

    def cost(
        self, cell: CellView, agent: str, generated: int, consumed: int, tokens: int = 0
    ) -> None:
        self.costs.append(
            CostRow(
                cell_key=cell.key,
                label=cell.label,
                method=cell.method,
                seed=cell.seed,
                combination=cell.combination,
                agent=agent,
                identity="",
                model="",
                rollouts_generated=generated,
                rollouts_consumed=consumed,
                tokens=tokens,
                device_seconds=0.0,
            )
        )

    def alone(self, method: str, agent: str, after: dict[int, float], before: float = 0.3) -> None:
        """Done cells of one agent, one per seed."""
        for seed, value in after.items():
            self.scores(self.cell(method, agent, seed), agent, before, value)

    def together(self, method: str, after: dict[int, dict[str, float]]) -> None:
        for seed, agents in after.items():
            cell = self.cell(method, "+".join(agents), seed)
            for agent, value in agents.items():
                self.scores(cell, agent, 0.3, value)

    def report(self, protocol: str | None = None, against: str | None = None) -> Report:
        models = {name: agent["model"] for name, agent in self.config["agents"].items()}
        facts = Facts(self.evaluations, self.costs, identities(models, self.cells))
        wanted = wanted_by_grid(self.config, self.cells)
        protocols = {"held_out": {"avg@8", "greedy"}}
        for row in self.evaluations:
            protocols.setdefault(row.task, set()).add(row.protocol)
        return build_report("sweep", wanted, facts, protocols, protocol, against)

    def row(self, method: str, agent: str) -> ReportRow:
        (row,) = [r for r in self.report().rows if (r.method, r.agent) == (method, agent)]
        return row
