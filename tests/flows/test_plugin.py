"""The bare deployment name, without a server."""

import asyncio
import logging
from typing import Any

import pytest
from prefect.client.orchestration._deployments.client import DeploymentAsyncClient
from prefect.plugins import HookContext

from flows.prefect_plugin import setup_environment


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
