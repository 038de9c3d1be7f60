"""Sweeps can be paused and cancelled, cells wait for another try, runs can be asked to stop."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Existing rows take the server's default, which new ones are not to rely on.
    with op.batch_alter_table("sweep") as table:
        table.add_column(sa.Column("wanted", sa.String(), nullable=False, server_default="run"))
        table.add_column(sa.Column("offline", sa.Boolean(), nullable=False, server_default="0"))
        table.add_column(sa.Column("max_running", sa.Integer(), nullable=True))
        table.add_column(sa.Column("told", sa.String(), nullable=True))
    with op.batch_alter_table("sweep") as table:
        table.alter_column("wanted", server_default=None)
        table.alter_column("offline", server_default=None)
    with op.batch_alter_table("cell") as table:
        table.add_column(sa.Column("lease_sweep_id", sa.Integer(), nullable=True))
        table.add_column(sa.Column("not_before", sa.DateTime(timezone=True), nullable=True))
        table.add_column(sa.Column("gpus", sa.Integer(), nullable=False, server_default="1"))
    with op.batch_alter_table("cell") as table:
        table.alter_column("gpus", server_default=None)
    with op.batch_alter_table("run") as table:
        table.add_column(sa.Column("wanted", sa.String(), nullable=False, server_default="run"))
    with op.batch_alter_table("run") as table:
        table.alter_column("wanted", server_default=None)
    op.create_index("ix_run_prefect_flow_run_id", "run", ["prefect_flow_run_id"])
    # Sweeps that had ended already are no news.
    unfinished = (
        "SELECT 1 FROM sweep_cell JOIN cell ON cell.id = sweep_cell.cell_id "
        "WHERE sweep_cell.sweep_id = sweep.id AND cell.state IN ('queued', 'running')"
    )
    op.execute(f"UPDATE sweep SET told = 'done' WHERE NOT EXISTS ({unfinished})")
