"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "combination",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("members", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_combination"),
        sa.UniqueConstraint("key", name="uq_combination_key"),
    )
    op.create_table(
        "sweep",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("submitted", sa.DateTime(timezone=True), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("prefect_flow_run_id", sa.String(), nullable=True),
        sa.Column("mlflow_experiment_url", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_sweep"),
        sa.UniqueConstraint("name", name="uq_sweep_name"),
    )
    op.create_table(
        "cell",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("method", sa.String(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("combination_id", sa.Integer(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("rollouts_planned", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("lease_holder", sa.String(), nullable=True),
        sa.Column("lease_token", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("steps_done", sa.Integer(), nullable=False),
        sa.Column("steps_total", sa.Integer(), nullable=False),
        sa.Column("rollouts_done", sa.BigInteger(), nullable=False),
        sa.Column("activity", sa.String(), nullable=False),
        sa.Column("mlflow_run_id", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("error_kind", sa.String(), nullable=True),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["combination_id"], ["combination.id"], name="fk_cell_combination_id_combination"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_cell"),
        sa.UniqueConstraint("key", name="uq_cell_key"),
    )
    op.create_index("ix_cell_combination_id", "cell", ["combination_id"])
    op.create_index("ix_cell_label", "cell", ["label"])
    op.create_index("ix_cell_state_lease_until", "cell", ["state", "lease_until"])
    op.create_table(
        "cell_agent",
        sa.Column("cell_id", sa.Integer(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("identity", sa.String(), nullable=False),
        sa.Column("mlflow_run_id", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["cell_id"], ["cell.id"], name="fk_cell_agent_cell_id_cell", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("cell_id", "agent", name="pk_cell_agent"),
    )
    op.create_index("ix_cell_agent_identity", "cell_agent", ["identity"])
    op.create_table(
        "checkpoint",
        sa.Column("cell_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["cell_id"], ["cell.id"], name="fk_checkpoint_cell_id_cell", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("cell_id", "step", name="pk_checkpoint"),
    )
    op.create_table(
        "cost",
        sa.Column("cell_id", sa.Integer(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("rollouts_generated", sa.BigInteger(), nullable=False),
        sa.Column("rollouts_consumed", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("device_seconds", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["cell_id"], ["cell.id"], name="fk_cost_cell_id_cell", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("cell_id", "agent", name="pk_cost"),
    )
    op.create_table(
        "evaluation",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cell_id", sa.Integer(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("protocol", sa.String(), nullable=False),
        sa.Column("mean", sa.Float(), nullable=True),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("identity_key", sa.String(), nullable=True),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["cell_id"], ["cell.id"], name="fk_evaluation_cell_id_cell", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_evaluation"),
        sa.UniqueConstraint(
            "cell_id",
            "agent",
            "step",
            "task",
            "protocol",
            name="uq_evaluation_cell_id_agent_step_task_protocol",
        ),
    )
    op.create_index("ix_evaluation_identity_key", "evaluation", ["identity_key"])
    op.create_table(
        "run",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cell_id", sa.Integer(), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("device", sa.String(), nullable=True),
        sa.Column("code_version", sa.String(), nullable=False),
        sa.Column("prefect_flow_run_id", sa.String(), nullable=True),
        sa.Column("mlflow_run_id", sa.String(), nullable=True),
        sa.Column("started", sa.DateTime(timezone=True), nullable=False),
        sa.Column("heartbeat", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("error_kind", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["cell_id"], ["cell.id"], name="fk_run_cell_id_cell", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
        sa.UniqueConstraint("cell_id", "token", name="uq_run_cell_id_token"),
    )
    op.create_table(
        "step_summary",
        sa.Column("cell_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("reward_mean", sa.Float(), nullable=True),
        sa.Column("capability", sa.Float(), nullable=True),
        sa.Column("rollouts", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["cell_id"], ["cell.id"], name="fk_step_summary_cell_id_cell", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("cell_id", "step", "agent", name="pk_step_summary"),
    )
    op.create_table(
        "sweep_cell",
        sa.Column("sweep_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("cell_id", sa.Integer(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("method", sa.String(), nullable=False),
        sa.Column("combination", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["cell_id"], ["cell.id"], name="fk_sweep_cell_cell_id_cell"),
        sa.ForeignKeyConstraint(
            ["sweep_id"],
            ["sweep.id"],
            name="fk_sweep_cell_sweep_id_sweep",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("sweep_id", "position", name="pk_sweep_cell"),
    )
    op.create_index("ix_sweep_cell_cell_id", "sweep_cell", ["cell_id"])
    op.create_index("ix_sweep_cell_label", "sweep_cell", ["label"])
    op.create_table(
        "evaluation_problem",
        sa.Column("evaluation_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.String(), nullable=False),
        sa.Column("scores", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["evaluation_id"],
            ["evaluation.id"],
            name="fk_evaluation_problem_evaluation_id_evaluation",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("evaluation_id", "position", name="pk_evaluation_problem"),
    )


def downgrade() -> None:
    for table in (
        "evaluation_problem",
        "sweep_cell",
        "step_summary",
        "run",
        "evaluation",
        "cost",
        "checkpoint",
        "cell_agent",
        "cell",
        "sweep",
        "combination",
    ):
        op.drop_table(table)
