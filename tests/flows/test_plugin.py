"""The bare deployment name, without a server."""

import asyncio
import http.server
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from prefect._internal.schemas import validators
from prefect.client.orchestration._deployments.client import DeploymentAsyncClient
from prefect.plugins import HookContext

from flows.prefect_plugin import list_time_zones_once, setup_environment
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


def test_the_server_lists_time_zones_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validators, "get_timezones", validators.get_timezones)  # put back after
    expected = set(validators.get_timezones())
    list_time_zones_once()
    first = validators.get_timezones()
    assert set(first) == expected
    assert validators.get_timezones() is first


def submit(folder: Path, api: str) -> "subprocess.CompletedProcess[str]":
    settings = {"PREFECT_API_URL": api, "PREFECT_HOME": str(folder), "PREFECT_API_AUTH_STRING": ""}
    return subprocess.run(
        [str(Path(sys.executable).parent / "prefect"), "deployment", "run", "hacpo-grid"],
        env=os.environ | settings,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )


def test_a_server_that_does_not_answer_is_told_in_one_line(tmp_path: Path) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}/api"
    done = submit(tmp_path, nowhere)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"Prefect does not answer at {nowhere}")
    assert "bash infra/quickstart.sh" in line


class Refusing(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_server_that_refuses_us_is_told_in_one_line(tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = submit(tmp_path, f"http://127.0.0.1:{server.server_port}/api")
        server.shutdown()
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "refuses these credentials: set PREFECT_API_AUTH_STRING" in line
