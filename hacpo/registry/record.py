"""Recording: what the holder of a claim learned about its cell. Each write replaces its like."""

import math
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from hacpo.registry.base import Claim
from hacpo.registry.execute import Execute, set_cell, wanted_of
from hacpo.registry.models import (
    CellAgent,
    Checkpoint,
    Cost,
    EvaluationProblem,
    EvaluationRecord,
    Run,
    Step,
)
from hacpo.types import Evaluation, ProblemScore, StepSummary


class Record(Execute):
    """The writes of an attempt; all raise LeaseLostError once the cell is somebody else's."""

    def record_step(self, claim: Claim, summary: StepSummary) -> str:
        """One finished step, numbered from 0; sets `steps_done` to the step's number + 1.

        The metrics are not kept here but in the ledger and MLflow.

        Returns:
            What the holder is to do, as `heartbeat`.
        """
        rows = [
            {
                "cell_id": claim.cell_id,
                "step": summary.step,
                "agent": agent.agent,
                "reward_mean": agent.reward_mean,
                "capability": agent.capability,
                "rollouts": agent.rollouts,
                "tokens": agent.tokens,
                "seconds": summary.seconds,
            }
            for agent in summary.agents.values()
        ]
        with self._holding(claim) as (connection, _):
            _replace(connection, Step, rows, cell_id=claim.cell_id, step=summary.step)
            so_far = select(func.coalesce(func.sum(Step.rollouts), 0)).where(
                Step.cell_id == claim.cell_id, Step.step <= summary.step
            )
            set_cell(
                connection,
                claim,
                steps_done=summary.step + 1,
                rollouts_done=connection.execute(so_far).scalar_one(),
            )
            return wanted_of(connection, claim)

    def record_checkpoint(
        self, claim: Claim, step: int, path: str, bytes: int, sha256: str
    ) -> None:
        """A checkpoint that is complete on disk.

        Args:
            claim: the attempt.
            step: completed steps.
            path: its folder.
            bytes: of all its files.
            sha256: of its completeness marker.
        """
        with self._holding(claim) as (connection, now):
            facts = {"path": path, "bytes": bytes, "sha256": sha256, "created": now}
            identity = {"cell_id": claim.cell_id, "step": step}
            _replace(connection, Checkpoint, [{**identity, **facts}], **identity)

    def forget_checkpoint(self, claim: Claim, step: int) -> None:
        """Before it is removed from disk."""
        with self._holding(claim) as (connection, _):
            _replace(connection, Checkpoint, [], cell_id=claim.cell_id, step=step)

    def record_evaluation(
        self, claim: Claim, evaluation: Evaluation, *, identity_key: str | None = None
    ) -> None:
        """A held-out evaluation with each problem's scores.

        Args:
            claim: the attempt.
            evaluation: its `agent`, `step`, `task` and `protocol` name it within the cell.
            identity_key: set for an untrained model: hash of all that its result depends on, under
                which `find_evaluation` gives it to other cells.
        """
        name = {
            "cell_id": claim.cell_id,
            "agent": evaluation.agent,
            "step": evaluation.step,
            "task": evaluation.task,
            "protocol": evaluation.protocol,
        }
        with self._holding(claim) as (connection, now):
            facts = {
                "mean": evaluation.mean,
                "counts": evaluation.counts,
                "identity_key": identity_key,
                "created": now,
            }
            _replace(connection, EvaluationRecord, [], **name)  # and, by the database, its problems
            record = connection.execute(
                insert(EvaluationRecord).values(**name, **facts).returning(EvaluationRecord.id)
            ).scalar_one()
            rows = [
                {
                    "evaluation_id": record,
                    "position": position,
                    "problem_id": problem.problem_id,
                    "scores": [None if math.isnan(score) else score for score in problem.scores],
                }
                for position, problem in enumerate(evaluation.problems)
            ]
            if rows:
                connection.execute(insert(EvaluationProblem), rows)

    def find_evaluation(
        self, identity_key: str, *, task: str, protocol: str, agent: str | None = None
    ) -> Evaluation | None:
        """An evaluation that was recorded under this key, so that it is not measured twice.

        Args:
            identity_key: as in `record_evaluation`.
            task: as in the evaluation.
            protocol: as in the evaluation.
            agent: the name for the result; None: what the cell that measured it calls the agent.
        """
        with self._database.reading() as connection:
            row = connection.execute(
                select(EvaluationRecord)
                .where(
                    EvaluationRecord.identity_key == identity_key,
                    EvaluationRecord.task == task,
                    EvaluationRecord.protocol == protocol,
                )
                .order_by(EvaluationRecord.id)
                .limit(1)
            ).one_or_none()
            if row is None:
                return None
            return Evaluation(
                agent=agent or row.agent,
                step=row.step,
                task=row.task,
                protocol=row.protocol,
                mean=row.mean,
                problems=read_problems(connection, row.id),
                counts=row.counts,
            )

    def record_tracking(self, claim: Claim, mlflow_run_id: str, agents: dict[str, str]) -> None:
        """The MLflow parent run, and agent -> child run; a later attempt gets them in its claim."""
        with self._holding(claim) as (connection, _):
            set_cell(connection, claim, mlflow_run_id=mlflow_run_id)
            attempt = update(Run).where(Run.id == claim.run_db_id)
            connection.execute(attempt.values(mlflow_run_id=mlflow_run_id))
            for agent, child in agents.items():
                connection.execute(
                    update(CellAgent)
                    .where(CellAgent.cell_id == claim.cell_id, CellAgent.agent == agent)
                    .values(mlflow_run_id=child)
                )

    def record_cost(
        self,
        claim: Claim,
        agent: str,
        *,
        rollouts_generated: int,
        rollouts_consumed: int,
        tokens: int,
        device_seconds: float,
    ) -> None:
        """What the agent cost since the cell began, as totals."""
        facts = {
            "rollouts_generated": rollouts_generated,
            "rollouts_consumed": rollouts_consumed,
            "tokens": tokens,
            "device_seconds": device_seconds,
        }
        name = {"cell_id": claim.cell_id, "agent": agent}
        with self._holding(claim) as (connection, _):
            _replace(connection, Cost, [{**name, **facts}], **name)


def read_problems(connection: Connection, evaluation: int) -> list[ProblemScore]:
    rows = connection.execute(
        select(EvaluationProblem.problem_id, EvaluationProblem.scores)
        .where(EvaluationProblem.evaluation_id == evaluation)
        .order_by(EvaluationProblem.position)
    )
    return [
        ProblemScore(
            problem_id=row.problem_id,
            scores=[math.nan if score is None else score for score in row.scores],
        )
        for row in rows
    ]


def _replace(
    connection: Connection,
    table: type[Step] | type[Checkpoint] | type[EvaluationRecord] | type[Cost],
    rows: list[dict[str, Any]],
    **name: Any,
) -> None:
    """Delete and insert: safe since the claim's renewal has locked the cell."""
    connection.execute(delete(table).filter_by(**name))
    if rows:
        connection.execute(insert(table), rows)
