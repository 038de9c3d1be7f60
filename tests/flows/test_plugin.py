"""The bare deployment name, without a server."""

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration._deployments.client import DeploymentAsyncClient
from prefect.plugins import HookContext

from flows.prefect_plugin import setup_environment
from tests.servers import free_port


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that reach Prefect's own lookup."""
    names: list[str] = []

    async def read_deployment_by_name(self: Any, name: str) -> str:
        names.append(name)
        return name

    monkeypatch.setattr(DeploymentAsyncClient, "read_deployment_by_name", read_deployment_by_name)
    return names


def context(version: str) -> HookContext:
    return HookContext(prefect_version=version, api_url=None, logger_factory=logging.getLogger)


def look_up(name: str) -> None:
    client = DeploymentAsyncClient.__new__(DeploymentAsyncClient)
    asyncio.run(client.read_deployment_by_name(name))


def test_bare_name_stands_for_flow_and_deployment(asked: list[str]) -> None:
    setup_environment(ctx=context("3.7.7"))
    look_up("hacpo-grid")
    look_up("other/nightly")
    assert asked == ["hacpo-grid/hacpo-grid", "other/nightly"]


def test_wraps_once(asked: list[str]) -> None:
    setup_environment(ctx=context("3.7.7"))
    wrapped = DeploymentAsyncClient.read_deployment_by_name
    setup_environment(ctx=context("3.7.7"))
    assert DeploymentAsyncClient.read_deployment_by_name is wrapped


def test_leaves_an_unknown_prefect_alone(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stock = DeploymentAsyncClient.read_deployment_by_name
    setup_environment(ctx=context("3.8.0"))
    assert DeploymentAsyncClient.read_deployment_by_name is stock
    monkeypatch.delattr(DeploymentAsyncClient, "read_deployment_by_name")
    setup_environment(ctx=context("3.7.9"))


def test_a_server_that_does_not_answer_is_told_in_one_line(tmp_path: Path) -> None:
    nowhere = {"PREFECT_API_URL": f"http://127.0.0.1:{free_port()}/api"}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "prefect"), "deployment", "run", "hacpo-grid"],
        env=os.environ | nowhere | {"PREFECT_HOME": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"Prefect does not answer at {nowhere['PREFECT_API_URL']}")
    assert "bash infra/quickstart.sh" in line
