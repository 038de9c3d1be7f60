"""The library's phases as Prefect tasks: the only adapter between the two."""

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from hacpo.loop import LOCAL, Phase, Phases


def _task(name: str) -> Phase:
    """One task per stage and step over all agents; the ledger, not Prefect, knows what is done."""
    # A cached or retried update would leave this process with untrained weights.
    options: dict[str, Any] = {"cache_policy": NO_CACHE, "persist_result": False, "retries": 0}
    return task(name=name, task_run_name=f"{name} step {{step}}", **options)(getattr(LOCAL, name))


PREFECT = Phases(*map(_task, Phases._fields))
"""Called directly, never `.submit`: they run in this thread and share the resident models."""
