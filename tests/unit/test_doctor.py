"""`hacpo doctor`: findings, remedies, secrets, and services that do not answer."""

import base64
import http.server
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hacpo.doctor import machine, work
from hacpo.doctor.check import Check, run_check
from hacpo.doctor.machine import environment_checks, machine_checks, masked
from hacpo.doctor.services import service_checks
from hacpo.doctor.work import read_config, work_checks
from hacpo.errors import DataError
from hacpo.places import default_registry_url
from hacpo.registry import Registry
from hacpo.registry.models import SCHEMA
from hacpo.slots import Taker, machine_slots
from tests.cli_runner import ROOT, Cli

PAIR = ROOT / "configs" / "embedded" / "pair.yaml"
Serve = Callable[[dict[str, str]], str]


@pytest.fixture(autouse=True)
def _home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server on loopback that answers some paths with a text, others with 404."""
    servers = []

    def start(answers: dict[str, str]) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = answers.get(self.path)
                self.send_response(404 if text is None else 200)
                self.end_headers()
                self.wfile.write((text or "").encode())

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def by_name(checks: Iterator[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_a_ready_machine_has_nothing_to_do(cli: Cli, home: Path) -> None:
    done = cli("doctor", str(PAIR), "--json")
    assert done.code == 0, done.out
    found = json.loads(done.out)
    names = [check["name"] for check in found["checks"]]
    assert found["ok"]
    assert {"python", "torch", "memory", "gpu", "registry", "model a", "problems"} <= {*names}
    assert not home.exists()  # only looked at
    shown = cli("doctor", str(PAIR))
    assert "to do" not in shown.out
    assert "256 held out" in shown.out


def test_what_is_wrong_is_said_and_the_rest_goes_on(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "c.yaml"
    config: dict[str, Any] = yaml.safe_load(PAIR.read_text())
    config["agents"]["b"]["model"] = "./nothing"
    config["threads"] = 1000
    file.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("HACPO_REGISTRY_URL", "nonsense://x")
    done = cli("doctor", str(file))
    wrong = [line for line in done.out.splitlines() if line.startswith("to do")]
    assert done.code == 2
    assert [line.split("  ")[1].strip() for line in wrong] == ["registry", "model b", "threads"]
    assert "no such folder" in wrong[1]
    assert cli("doctor", str(tmp_path / "none.yaml")).code == 2
    assert "Traceback" not in done.out + done.err


def test_a_check_is_bounded_and_never_a_traceback() -> None:
    start = time.monotonic()
    assert run_check("slow", lambda: time.sleep(30) or "", 0.2).text.startswith("no answer within")
    assert time.monotonic() - start < 5

    def broken() -> str:
        raise KeyError("x\ny")

    def refused() -> str:
        raise DataError("mend this")

    assert run_check("b", broken) == Check("b", False, r"KeyError: 'x\ny'")
    assert run_check("r", refused) == Check("r", False, "mend this")


def test_servers_are_asked_for_their_versions(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # loopback is never asked through it
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", serve({"/version": "3.17.2"}))
    monkeypatch.setenv("PREFECT_API_URL", serve({"/api/admin/version": '"3.7.7"'}) + "/api")
    found = by_name(service_checks(None))
    assert found["mlflow server"].ok
    assert found["mlflow server"].text.endswith(", version 3.17.2")
    assert found["prefect server"].ok
    assert found["prefect server"].text.endswith(", version 3.7.7")


def test_servers_that_do_not_answer_or_are_too_old_are_to_do(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    found = by_name(service_checks(serve({"/version": "1.30.0"})))
    assert (found["mlflow server"].ok, found["prefect server"].ok) == (False, False)
    assert "runs 1.30.0, the client here is 3." in found["mlflow server"].text
    assert "does not answer" in found["prefect server"].text
    monkeypatch.setenv("PREFECT_API_URL", serve({}))
    assert "Not Found" in by_name(service_checks("http://user:word@[::1"))["prefect server"].text
    assert not by_name(service_checks("file:/x"))["mlflow server"].ok


class Guarded(http.server.BaseHTTPRequestHandler):
    """Tells its versions to those who know the password `b`."""

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == f"Basic {base64.b64encode(b'a:b').decode()}"
        self.send_response(200 if known else 401)
        self.end_headers()
        if known:
            version = '"3.7.7"' if "admin" in self.path else "3.17.2"
            self.wfile.write(version.encode())

    def log_message(self, *_: object) -> None:
        pass


def test_servers_get_credentials_and_refusals_are_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "PREFECT_API_AUTH_STRING"):
        monkeypatch.delenv(name, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("PREFECT_API_URL", f"{uri}/api")
        for known in (False, True):
            if known:
                monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "a")
                monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "b")
                monkeypatch.setenv("PREFECT_API_AUTH_STRING", "a:b")
            found = by_name(service_checks(uri))
            for name in ("mlflow server", "prefect server"):
                assert found[name].ok is known
                assert ("refuses these credentials: set" in found[name].text) is not known
        server.shutdown()


def test_the_registry_is_looked_at_and_not_made(home: Path) -> None:
    check = by_name(service_checks(None))["registry"]
    assert check.ok
    assert "(made on first use)" in check.text
    assert not home.exists()
    Registry.open(default_registry_url()).close()
    assert f"schema {SCHEMA}" in by_name(service_checks(None))["registry"].text


def test_secrets_are_masked() -> None:
    environment = {
        "HF_TOKEN": "hf_hush",
        "MLFLOW_TRACKING_PASSWORD": "hush",
        "PREFECT_API_AUTH_STRING": "hush",
        "HACPO_REGISTRY_URL": "postgresql://ann:hush@host/db?password=hush&sslmode=require",
        "https_proxy": "http://ann:hush@proxy:3128",
        "HOME": "/root",
        "OMP_NUM_THREADS": "1",
    }
    shown = [check.text for check in environment_checks(environment)]
    assert not any("hush" in text for text in shown)
    assert "HACPO_REGISTRY_URL=postgresql://***@host/db?password=***&sslmode=require" in shown
    assert "OMP_NUM_THREADS=1" in shown
    assert len(shown) == 6
    assert masked("HF_TOKEN", "") == ""


def test_models_are_looked_at_without_fetching_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read_config(ROOT / "configs" / "real" / "smollm2+gemma3.yaml")
    found = by_name(work_checks(config, home))
    assert found["model smollm2"].ok
    assert "downloaded on first use (98 MB" in found["model smollm2"].text
    assert read_config(PAIR.with_name("grid.yaml")).name == "embedded"
    monkeypatch.setattr(work.importlib.util, "find_spec", lambda name: None)
    found = by_name(work_checks(config, home))
    assert "needs gguf and accelerate: install them" in found["model smollm2"].text


def test_a_full_disk_a_locked_home_and_a_missing_package_are_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "MIN_FREE_BYTES", 1 << 60)
    monkeypatch.setattr(machine, "REQUIRED", ("no-such-package",))
    monkeypatch.setattr(machine.os, "access", lambda *_: False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1000")
    found = by_name(machine_checks(tmp_path / "home"))
    wrong = {name for name, check in found.items() if not check.ok}
    assert wrong == {"no-such-package", "cores", "home", "disk"}
    assert "pip install no-such-package" in found["no-such-package"].text


def test_slots_are_told_with_their_holders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HACPO_GPUS", "none")
    monkeypatch.setenv("HACPO_SLOTS", "2")
    monkeypatch.setattr(machine, "_gpus", lambda: "not asked here: loads torch")
    assert by_name(machine_checks(tmp_path))["slots"].text == "2 CPU slots, 0 held"
    Taker(machine_slots(tmp_path, os.environ), 1).take("run 1, process 2")
    told = by_name(machine_checks(tmp_path))["slots"].text
    assert told == "2 CPU slots, 1 held; cpu0 by run 1, process 2"
