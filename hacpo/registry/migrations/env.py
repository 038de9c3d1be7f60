"""Alembic's entry: runs the migrations on the connection that hacpo.registry.upgrade passes."""

from typing import Any, Literal

from alembic import context

from hacpo.registry.database import VERSION_TABLE
from hacpo.registry.models import Base, JsonData, Measure, UtcDateTime


def render_item(kind: str, item: Any, _: Any) -> str | Literal[False]:
    """Migrations name plain SQL types, so that they do not change with models.py."""
    plain = {
        UtcDateTime: "sa.DateTime(timezone=True)",
        Measure: "sa.Float()",
        JsonData: "sa.JSON()",
    }
    return plain.get(type(item), False) if kind == "type" else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,  # SQLite changes a table by copying it
    render_item=render_item,
)
with context.begin_transaction():
    context.run_migrations()
