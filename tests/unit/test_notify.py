"""People are told through a webhook, which is a real one here."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from hacpo.errors import ServiceError
from hacpo.notify import WEBHOOK, notify
from hacpo.registry import Registry, SweepView
from tests.registry.helpers import submit


@pytest.fixture
def view(tmp_path: Path) -> Iterator[SweepView]:
    with Registry.open(f"sqlite:///{tmp_path}/registry.db") as registry:
        submit(registry, "a", "b")
        claim = registry.claim("h", host="box", pid=1)
        assert claim is not None
        registry.fail(claim, "oom", "out of memory", requeue=False)
        yield registry.sweep("sweep")


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    found: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if self.path == "/broken" else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv(WEBHOOK, f"http://127.0.0.1:{server.server_port}/s3cret")
    yield found
    server.shutdown()
    server.server_close()


def test_the_message_tells_which_sweep_what_and_why(view: SweepView, received: list[Any]) -> None:
    assert notify(view, "failing")
    (message,) = received
    assert message == {
        "text": "sweep sweep of ann: failing; 0 of 2 cells done, 1 failed: hacpo a+b a "
        "(oom: out of memory)",
        "sweep": "sweep",
        "state": "failing",
        "owner": "ann",
        "done": 0,
        "failed": 1,
        "cells": 2,
    }


def test_without_an_address_nobody_is_told(
    view: SweepView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WEBHOOK, raising=False)
    assert not notify(view, "done")


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/s3cret", "nonsense-s3cret"])
def test_an_address_that_does_not_take_it_is_told_without_itself(
    view: SweepView, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WEBHOOK, url)
    with pytest.raises(ServiceError) as refused:
        notify(view, "done")
    assert "HACPO_WEBHOOK_URL was not told that sweep sweep is done" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_refusal_is_an_error(
    view: SweepView, received: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    monkeypatch.setenv(WEBHOOK, os.environ[WEBHOOK].replace("s3cret", "broken"))
    with pytest.raises(ServiceError, match="Internal Server Error"):
        notify(view, "done")
