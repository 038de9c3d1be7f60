"""A run that waits for slots: what it asks and tells Prefect, which a small server stands for."""

import errno
import http.server
import inspect
import io
import json
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from prefect.runner import runner
from prefect.workers import base

from flows import prefect_http
from flows.orphan import LAST_WORD, LAST_WORD_SECONDS, Orphan
from flows.running import live_runs
from hacpo.slots import holders, machine_slots
from tests.servers import free_port
from tests.wrapped import environment, soon, wrapped


class Prefect(http.server.ThreadingHTTPServer):
    """Says that every run is in one state; keeps the lines that it is told."""

    state: str | None = "PENDING"
    """None: it fails."""
    message = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked = 0
        self.lines: list[str] = []
        self.states: list[str] = []

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/api"


class Answer(http.server.BaseHTTPRequestHandler):
    server: Prefect

    def do_GET(self) -> None:
        self.server.asked += 1
        if self.server.state is None:
            self.send_error(500)
        else:
            state = {"message": self.server.message}
            self.reply({"state_type": self.server.state, "state": state})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/set_state"):
            self.server.states.append(body["state"]["type"])
        else:
            self.server.lines += [line["message"] for line in body]
        self.reply({})

    def reply(self, answer: Any) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def prefect() -> Iterator[Prefect]:
    with Prefect() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def busy(home: Path) -> Iterator["subprocess.Popen[str]"]:
    """What has both slots."""
    first = wrapped(home, 2, "sleep", "60")
    assert soon(lambda: all(holders(machine_slots(home, environment(home))).values()))
    yield first
    first.terminate()
    first.wait(20)


def wait_for_slot(home: Path, prefect: Prefect) -> "subprocess.Popen[str]":
    names = {"PREFECT_API_URL": prefect.api, "PREFECT__FLOW_RUN_ID": "waiting"}
    return wrapped(home, 1, "touch", "started", impatient=True, **names)


def test_it_says_that_it_waits_until_it_works(
    home: Path, busy: "subprocess.Popen[str]", prefect: Prefect
) -> None:
    second = wait_for_slot(home, prefect)
    assert soon(lambda: len(prefect.lines) > 2)
    assert set(prefect.lines) == {"waiting for 1 of 2 slots"}
    busy.terminate()
    assert second.wait(20) == 0
    assert (home / "started").exists()


def test_one_that_was_ended_in_prefect_leaves(
    home: Path, busy: "subprocess.Popen[str]", prefect: Prefect
) -> None:
    prefect.state = "CRASHED"
    second = wait_for_slot(home, prefect)
    assert second.wait(20) == 143
    assert not (home / "started").exists()
    assert "Prefect says CRASHED" in (home / "logs" / "runs" / "waiting.log").read_text()
    assert prefect.lines == []


def test_without_an_answer_it_waits_on(
    home: Path, busy: "subprocess.Popen[str]", prefect: Prefect
) -> None:
    prefect.state = None
    second = wait_for_slot(home, prefect)
    assert soon(lambda: prefect.asked > 2)
    assert len([run for run in live_runs(home) if not run.engine]) == 1
    busy.terminate()
    assert second.wait(20) == 0
    assert (home / "started").exists()


class Full(io.StringIO):
    """A stream to a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("reply", [b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"garbage"])
def test_a_reply_that_breaks_off_is_no_answer(
    reply: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", "run")
    monkeypatch.setattr("sys.stderr", Full())
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{server.getsockname()[1]}/api")

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        assert prefect_http.state_of("run", tries=1) == ("", "")
        thread.join()


def test_a_server_that_is_away_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", "run")
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{free_port()}/api")
    assert prefect_http.state_of("run") == ("", "")


@pytest.fixture
def orphan(prefect: Prefect, monkeypatch: pytest.MonkeyPatch) -> Orphan:
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", "run")
    monkeypatch.setenv("PREFECT_API_URL", prefect.api)
    prefect.state, prefect.message = "CRASHED", f"Flow run infrastructure {LAST_WORD}."
    return Orphan("run", print)


def test_the_last_word_of_a_worker_is_taken_back(orphan: Orphan, prefect: Prefect) -> None:
    assert not orphan.look()
    assert prefect.states == ["RUNNING"]
    # It had ended when that was written: by itself it told Prefect before.
    prefect.state = "RUNNING"
    orphan.report(0)
    assert prefect.states == ["RUNNING", "COMPLETED"]


def test_a_true_crash_and_a_late_one_are_not(orphan: Orphan, prefect: Prefect) -> None:
    orphan.since -= LAST_WORD_SECONDS
    assert not orphan.look()
    orphan.since += LAST_WORD_SECONDS
    prefect.message = "Execution was interrupted by an unexpected exception"
    assert not orphan.look()
    assert prefect.states == []


def test_who_is_cancelled_stops_and_says_so(orphan: Orphan, prefect: Prefect) -> None:
    prefect.state = "CANCELLING"
    assert orphan.look()
    orphan.report(143)
    assert prefect.states == ["CANCELLED"]


@pytest.mark.parametrize("module", [base, runner], ids=["worker", "runner"])
def test_the_last_word_is_prefects(module: ModuleType) -> None:
    words, code = LAST_WORD.rsplit(" ", 1)
    assert words in inspect.getsource(module)
    assert code == str(-signal.SIGKILL)
