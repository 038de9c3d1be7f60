"""Lets `prefect deployment run hacpo-grid` find the deployment `hacpo-grid/hacpo-grid`.

Loaded by Prefect at its start (entry point `prefect.plugins`) where `[tool.prefect.plugins]` in the
current folder's pyproject.toml enables it. Prefect has no public hook for this, so one client
method is wrapped; where that does not fit, nothing changes and the full name still works. The same
method is where the command line first needs its server: if there is none, or it refuses us, that is
one line. In the server's own process it mends what keeps schedules from creating runs, and what
makes reading them slow.
"""

import functools
import importlib
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from prefect.plugins import HookContext, register_hook

PREFECT_PLUGIN_API_REQUIRES = ">=0.1,<1"
TESTED = ("3.7",)


def is_server(words: list[str]) -> bool:
    """Whether this command line runs a server: `prefect server start`, or one of its processes."""
    return {"server", "start"} <= set(words) or any("prefect.server." in word for word in words)


def let_schedules_create_runs() -> None:
    """In the server: let schedules work under SQLAlchemy 2.1.

    The scheduler of Prefect 3.7 inserts runs by a bulk statement with a value for the property
    `state`, which is no column. SQLAlchemy 2.0 passes over it; 2.1 refuses the whole statement
    unless the property says what is to be done, and no scheduled run ever appears.
    """
    from sqlalchemy import event
    from sqlalchemy.orm import Mapper

    @event.listens_for(Mapper, "mapper_configured")
    def mend(mapper: Any, model: type) -> None:
        if model.__name__ == "FlowRun" and model.__module__.startswith("prefect.server."):
            state = mapper.all_orm_descriptors.get("state")
            if getattr(state, "bulk_dml_setter", True) is None:
                state.bulk_dml_setter = lambda owner, values, value: None


def list_time_zones_once() -> None:
    """In the server: it lists the machine's time zones, a folder of files, for every schedule that
    it reads, and spends a third of its time so."""
    with suppress(ImportError, AttributeError):
        validators: Any = importlib.import_module("prefect._internal.schemas.validators")
        validators.get_timezones = functools.cache(validators.get_timezones)


@register_hook
def setup_environment(*, ctx: HookContext) -> None:
    """Prefect's startup hook."""
    if ".".join(ctx.prefect_version.split(".")[:2]) not in TESTED:
        return
    if is_server(sys.orig_argv):
        let_schedules_create_runs()
        list_time_zones_once()
    try:
        from prefect.client.orchestration._deployments.client import DeploymentAsyncClient

        by_full_name = DeploymentAsyncClient.read_deployment_by_name
    except (ImportError, AttributeError):
        return
    if getattr(by_full_name, "takes_bare_names", False):
        return

    async def read_deployment_by_name(self: Any, name: str) -> Any:
        try:
            return await by_full_name(self, name if "/" in name else f"{name}/{name}")
        except (httpx.ConnectError, httpx.HTTPStatusError) as error:
            told = _explanation(error, self._client.base_url)
            # A flow may wait for its server to come back.
            if told is None or Path(sys.argv[0]).name != "prefect":
                raise
            print(told, file=sys.stderr)
            raise SystemExit(2) from None

    read_deployment_by_name.takes_bare_names = True  # type: ignore[attr-defined]
    DeploymentAsyncClient.read_deployment_by_name = read_deployment_by_name  # type: ignore[method-assign]


def _explanation(error: httpx.HTTPError, server: object) -> str | None:
    """One line for a person, None for what Prefect tells better."""
    if isinstance(error, httpx.ConnectError):
        return (
            f"Prefect does not answer at {server}: start it with "
            "`bash infra/quickstart.sh`, or `source .hacpo/env` if it runs elsewhere"
        )
    if isinstance(error, httpx.HTTPStatusError) and error.response.status_code in (401, 403):
        return (
            f"Prefect at {server} refuses these credentials: set PREFECT_API_AUTH_STRING "
            "(a team's: source HACPO_HOME/env)"
        )
    return None
