"""The scripts, as far as they can be tested without starting anything."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers import CHECKOUT, free_port

TEAM = {"HACPO_POSTGRES_BIN": "/nowhere", "HACPO_S3_PORT": "9"}
SKIPS = """<testsuites><testsuite><testcase classname="tests.a" name="test_b">
<skipped type="pytest.skip" message="{reason}"/></testcase></testsuite></testsuites>"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run something in the checkout; keywords are for its environment."""

    def command(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        ports = {"HACPO_PREFECT_PORT": str(free_port()), "HACPO_MLFLOW_PORT": str(free_port())}
        settings = os.environ | ports | {"HACPO_HOME": str(tmp_path / "home")} | environment
        return subprocess.run(words, cwd=CHECKOUT, env=settings, capture_output=True, text=True)

    return command


@pytest.mark.parametrize("variable", ["HACPO_PREFECT_PORT", "HACPO_MLFLOW_PORT"])
def test_occupied_port_is_one_line_and_starts_nothing(
    run: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path, variable: str
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = run(sys.executable, "infra/services.py", "start", **{variable: port})
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"port {port}" in done.stderr
    assert variable in done.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(("variable", "value"), [("HACPO_SLOTS", "many"), ("HACPO_GPUS", "0,1")])
def test_malformed_slots_are_one_line_and_dont_keep_from_stopping(
    run: Callable[..., "subprocess.CompletedProcess[str]"], variable: str, value: str
) -> None:
    done = run(sys.executable, "infra/services.py", "start", **{variable: value})
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"{variable}={value}" in done.stderr
    assert run(sys.executable, "infra/services.py", "stop", **{variable: value}).returncode == 0


def test_stop_and_status_without_services(
    run: Callable[..., "subprocess.CompletedProcess[str]"],
) -> None:
    assert run(sys.executable, "infra/services.py", "stop").stdout == "Nothing was running\n"
    assert run(sys.executable, "infra/services.py", "status").stdout.count("stopped") == 4


def test_a_recycled_process_id_is_not_ours(
    run: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    pids = tmp_path / "home" / "pids"
    pids.mkdir(parents=True)
    (pids / "mlflow").write_text(f"{os.getpid()} 12 5000\n")
    assert run(sys.executable, "infra/services.py", "stop").stdout == "Nothing was running\n"


@pytest.mark.parametrize(
    ("words", "told"), [(["--smok"], "--smok"), (["--config", "nowhere.yaml"], "nowhere.yaml")]
)
def test_quickstart_refuses_what_it_does_not_know(
    run: Callable[..., "subprocess.CompletedProcess[str]"], words: list[str], told: str
) -> None:
    done = run("bash", "infra/quickstart.sh", *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert told in done.stderr


def test_install_names_the_pythons_that_it_can_use(
    run: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    settings = {"HACPO_PYTHON": str(old), "HACPO_VENV": str(tmp_path / "venv")}
    done = run("bash", "infra/quickstart.sh", **settings)
    assert done.returncode == 1
    assert "needs Python 3.11, 3.12 or 3.13" in done.stderr


@pytest.mark.parametrize(("reason", "code"), [("no GPU here", 0), ("forgot something", 1)])
def test_skips_must_be_expected(
    run: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path, reason: str, code: int
) -> None:
    report, patterns = tmp_path / "report.xml", tmp_path / "patterns"
    report.write_text(SKIPS.format(reason=reason))
    patterns.write_text("# comment\nno GPU\n")
    done = run(sys.executable, "infra/skips.py", str(report), str(patterns))
    assert done.returncode == code
    assert (reason in done.stderr) == bool(code)


def test_an_unusable_home_is_one_line(
    run: Callable[..., "subprocess.CompletedProcess[str]"],
) -> None:
    done = run(sys.executable, "infra/services.py", "start", HACPO_HOME="/proc/nope")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "/proc/nope" in done.stderr
    assert "set HACPO_HOME" in done.stderr


def test_stop_uses_the_environment_that_was_started_with(
    run: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    home, venv = tmp_path / "home", tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    home.mkdir()
    (home / "env").write_text(f"export HACPO_VENV={venv}\n")
    done = run("bash", "infra/quickstart.sh", "--stop", HACPO_VENV="")
    assert (done.returncode, done.stdout) == (0, "Nothing was running\n")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"S3_ENDPOINT": "http://127.0.0.1:9"}, "S3_ACCESS_KEY and S3_SECRET_KEY"),
        ({"PREFECT_API_AUTH_STRING": "word"}, "PREFECT_API_AUTH_STRING must be USER:PASSWORD"),
        ({"HACPO_POSTGRES_PORT": "database"}, "HACPO_POSTGRES_PORT=database"),
    ],
)
def test_a_team_that_cannot_start_is_one_line_and_leaves_no_secrets(
    run: Callable[..., "subprocess.CompletedProcess[str]"],
    tmp_path: Path,
    settings: dict[str, str],
    told: str,
) -> None:
    secrets = dict.fromkeys(["PREFECT_API_AUTH_STRING", "S3_ENDPOINT", "S3_SECRET_KEY"], "")
    done = run(sys.executable, "infra/team.py", "start", **(TEAM | secrets | settings))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert told in done.stderr
    assert not (tmp_path / "home" / "team.env").exists()


def test_a_port_of_the_team_that_is_taken_is_one_line(
    run: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = run(sys.executable, "infra/team.py", "start", **TEAM, HACPO_POSTGRES_PORT=port)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"port {port} for postgres is in use" in done.stderr
    assert not (tmp_path / "home" / "team.env").exists()


def test_a_team_that_was_never_started_has_nothing_to_stop(
    run: Callable[..., "subprocess.CompletedProcess[str]"],
) -> None:
    for action in ("stop", "status"):
        done = run("bash", "infra/team.sh", action, HACPO_VENV=str(Path(sys.executable).parents[1]))
        assert (done.returncode, done.stdout) == (0, "Nothing was ever started here\n")
    assert run("bash", "infra/team.sh", "halt").returncode == 2
