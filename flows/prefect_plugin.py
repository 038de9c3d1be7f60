"""Lets `prefect deployment run hacpo-grid` find the deployment `hacpo-grid/hacpo-grid`.

Loaded by Prefect at its start (entry point `prefect.plugins`) where `[tool.prefect.plugins]` in the
current folder's pyproject.toml enables it. Prefect has no public hook for this, so one client
method is wrapped; where that does not fit, nothing changes and the full name still works.
"""

from typing import Any

from prefect.plugins import HookContext, register_hook

PREFECT_PLUGIN_API_REQUIRES = ">=0.1,<1"
TESTED = ("3.7",)


@register_hook
def setup_environment(*, ctx: HookContext) -> None:
    """Prefect's startup hook."""
    if ".".join(ctx.prefect_version.split(".")[:2]) not in TESTED:
        return
    try:
        from prefect.client.orchestration._deployments.client import DeploymentAsyncClient

        by_full_name = DeploymentAsyncClient.read_deployment_by_name
    except (ImportError, AttributeError):
        return
    if getattr(by_full_name, "takes_bare_names", False):
        return

    async def read_deployment_by_name(self: Any, name: str) -> Any:
        return await by_full_name(self, name if "/" in name else f"{name}/{name}")

    read_deployment_by_name.takes_bare_names = True  # type: ignore[attr-defined]
    DeploymentAsyncClient.read_deployment_by_name = read_deployment_by_name  # type: ignore[method-assign]
