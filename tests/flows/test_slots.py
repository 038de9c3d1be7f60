"""The wrapper around every run, with real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from flows.running import live_runs
from hacpo.slots import GPU_FOLDER, holders, machine_slots
from tests.servers import CHECKOUT
from tests.wrapped import environment, lives, soon, wrapped

LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's subreaper")
# Leaves a child in a session of its own whose parent is gone, then waits; ends on SIGTERM with 5.
FAMILY = """
import os, pathlib, signal, subprocess, sys, time
def end(*_):
    pathlib.Path("asked").touch()
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
middle = "import os, subprocess, sys; subprocess.Popen(['sleep', '60'], start_new_session=True)"
subprocess.run([sys.executable, "-c", middle], check=True)
pathlib.Path("ready").touch()
time.sleep(60)
"""
STUBBORN = "trap '' TERM; touch ready; while true; do sleep 0.2; done"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A HACPO_HOME; what a failed test leaves there is killed."""
    yield tmp_path / "home"
    for run in live_runs(tmp_path / "home"):
        for process in filter(None, (run.guard, run.engine)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@dataclass(frozen=True)
class Working:
    """A run's processes."""

    id: str
    guard: int
    engine: int


def working(home: Path) -> Working:
    """The home's only run, once it works."""
    assert soon(lambda: [run for run in live_runs(home) if run.engine])
    [run] = live_runs(home)
    assert run.guard
    assert run.engine
    return Working(run.id, run.guard, run.engine)


def held(home: Path) -> dict[str, str | None]:
    return holders(machine_slots(home, environment(home)))


def free(home: Path) -> bool:
    return set(held(home).values()) == {None}


def sleepers(home: Path) -> set[int]:
    """The `sleep 60` processes of this test: those whose folder is its home."""
    listed = subprocess.run(["pgrep", "-f", "^sleep 60"], capture_output=True, text=True)
    found = set()
    for pid in map(int, listed.stdout.split()):
        if lives(pid) and os.readlink(f"/proc/{pid}/cwd") == str(home):
            found.add(pid)
    return found


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143)]
)
def test_exits_as_its_command_and_logs_what_it_says(home: Path, script: str, code: int) -> None:
    name = str(uuid4())
    told = "echo hello $HACPO_SLOT; echo error >&2; " + script
    run = wrapped(home, 1, "sh", "-c", told, PREFECT__FLOW_RUN_ID=name)
    assert run.wait(20) == code
    log = (home / "logs" / "runs" / f"{name}.log").read_text()
    assert "hello cpu0\nerror\n" in log
    assert f"ended with {code}" in log
    assert live_runs(home) == []
    assert free(home)


@pytest.mark.parametrize(
    ("arguments", "changes", "told"),
    [
        (["3", "--", "true"], {}, "3 CPU slots are asked for, but this machine has 2"),
        (["1", "true"], {}, "use python -m flows.slots N -- COMMAND"),
        (["x", "--", "true"], {}, "use python -m flows.slots N -- COMMAND"),
        ([], {}, "use python -m flows.slots N -- COMMAND"),
        (["1", "--", "true"], {"HACPO_HOME": ""}, "HACPO_HOME is not set"),
        (["1", "--", "true"], {"HACPO_HOME": "/proc/nope"}, "set HACPO_HOME"),
        (["1", "--", "true"], {"HACPO_GPUS": "0"}, "whole UUID"),
    ],
)
def test_what_cannot_be_is_one_line(
    tmp_path: Path, arguments: list[str], changes: dict[str, str], told: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flows.slots", *arguments],
        cwd=tmp_path,
        env=environment(tmp_path / "home", **changes),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert told in done.stderr


def test_a_command_that_does_not_exist_is_told(home: Path) -> None:
    run = wrapped(home, 1, "no-such-command")
    assert run.wait(20) == 1
    [log] = (home / "logs" / "runs").iterdir()
    assert "no-such-command" in log.read_text()
    assert free(home)


def test_no_two_of_many_are_on_one_slot(home: Path) -> None:
    inside = 'mkdir $HACPO_SLOT || exit 9; sleep 0.1; rmdir $HACPO_SLOT; echo "$HACPO_SLOT" >>used'
    runs = [wrapped(home, 1, "sh", "-c", inside) for _ in range(10)]
    assert [run.wait(60) for run in runs] == [0] * 10
    assert set((home / "used").read_text().split()) == {"cpu0", "cpu1"}


def test_who_wants_several_is_not_overtaken(home: Path) -> None:
    first = wrapped(
        home, 1, "sh", "-c", "until test -e go; do sleep 0.02; done; echo first >>order"
    )
    assert soon(lambda: held(home)["cpu0"])
    both = wrapped(home, 2, "sh", "-c", "echo both $HACPO_SLOT >>order")
    assert soon(lambda: len(live_runs(home)) == 2)
    time.sleep(0.5)  # it queues by now
    later = [wrapped(home, 1, "sh", "-c", "echo later >>order") for _ in range(3)]
    time.sleep(1)
    assert not (home / "order").exists()  # although one slot has been free all the time
    (home / "go").touch()
    assert [run.wait(30) for run in (first, both, *later)] == [0] * 5
    assert (home / "order").read_text().splitlines() == ["first", "both cpu0,cpu1", *["later"] * 3]


@LINUX_ONLY
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_what_it_left(home: Path, number: signal.Signals) -> None:
    run = wrapped(home, 1, sys.executable, "-c", FAMILY)
    assert soon((home / "ready").exists)
    assert soon(lambda: len(sleepers(home)) == 1)
    run.send_signal(number)
    assert run.wait(20) == (5 if number == signal.SIGTERM else 128 + number)
    assert sleepers(home) == set()
    assert free(home)


@LINUX_ONLY
def test_what_a_command_leaves_is_ended_with_it(home: Path) -> None:
    run = wrapped(home, 1, sys.executable, "-c", FAMILY.replace("time.sleep(60)", "sys.exit(0)"))
    assert run.wait(20) == 0
    assert sleepers(home) == set()
    [log] = (home / "logs" / "runs").iterdir()
    assert "1 processes that it left were ended" in log.read_text()


def test_a_command_that_does_not_end_is_killed(home: Path) -> None:
    run = wrapped(home, 1, "bash", "-c", STUBBORN, impatient=True)
    assert soon((home / "ready").exists)
    started = time.monotonic()
    run.terminate()
    assert run.wait(20) == 137
    assert time.monotonic() - started < 5
    assert free(home)


def test_a_killed_relay_is_a_restarted_worker_and_the_run_goes_on(home: Path) -> None:
    name = str(uuid4())
    script = "until test -e go; do sleep 0.05; done; echo done"
    run = wrapped(home, 1, "sh", "-c", script, PREFECT__FLOW_RUN_ID=name)
    working(home)
    run.kill()
    run.wait()
    time.sleep(0.5)
    assert working(home).id == name
    assert name in str(held(home)["cpu0"])
    twice = wrapped(home, 1, "true", PREFECT__FLOW_RUN_ID=name)
    assert "still lives on this machine" in twice.communicate()[1]
    assert twice.returncode == 2
    (home / "go").touch()
    assert soon(lambda: free(home))
    assert live_runs(home) == []
    log = (home / "logs" / "runs" / f"{name}.log").read_text()
    assert "the worker is gone; this run goes on" in log
    assert "done\n" in log


def test_a_cancelled_run_ends_even_if_the_relay_is_killed_meanwhile(home: Path) -> None:
    run = wrapped(home, 1, "bash", "-c", STUBBORN, impatient=True)
    assert soon((home / "ready").exists)
    engine = working(home).engine
    run.terminate()
    time.sleep(0.2)
    run.kill()
    assert soon(lambda: not lives(engine), 5)
    assert soon(lambda: free(home), 5)


@LINUX_ONLY
def test_a_killed_guard_ends_its_command(home: Path) -> None:
    run = wrapped(home, 1, sys.executable, "-c", FAMILY, impatient=True)
    assert soon((home / "ready").exists)
    live = working(home)
    os.kill(live.guard, signal.SIGKILL)
    assert run.wait(20) == 137
    assert (home / "asked").exists()
    assert not lives(live.engine)
    assert sleepers(home) == set()
    assert free(home)
    assert live_runs(home) == []


def test_what_outlives_relay_and_guard_keeps_its_slot(home: Path) -> None:
    run = wrapped(home, 1, "bash", "-c", STUBBORN)
    assert soon((home / "ready").exists)
    live = working(home)
    run.kill()
    run.wait()
    os.kill(live.guard, signal.SIGKILL)
    time.sleep(0.5)
    assert lives(live.engine)
    assert held(home)["cpu0"]
    assert working(home).engine == live.engine
    os.kill(live.engine, signal.SIGKILL)
    assert soon(lambda: free(home))
    assert live_runs(home) == []
    assert list((home / "slots" / "runs").iterdir()) == []


def test_a_run_that_waits_can_be_cancelled(home: Path) -> None:
    first = wrapped(home, 2, "sleep", "60")
    assert soon(lambda: all(held(home).values()))
    second = wrapped(home, 1, "touch", "started")
    assert soon(lambda: len([run for run in live_runs(home) if run.guard]) == 2)
    second.terminate()
    assert second.wait(20) == 143
    assert not (home / "started").exists()
    first.terminate()
    assert first.wait(20) == 143


def test_ctrl_c_is_the_workers_own(home: Path) -> None:
    name = str(uuid4())
    run = wrapped(home, 1, "sleep", "60", PREFECT__FLOW_RUN_ID=name)
    working(home)
    run.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert run.poll() is None
    run.terminate()
    assert run.wait(20) == 143


def test_gpus_are_given_by_uuid(home: Path) -> None:
    name = f"GPU-{uuid4()}"
    told = 'test "$HACPO_SLOT" = "$CUDA_VISIBLE_DEVICES" && echo "visible $CUDA_VISIBLE_DEVICES"'
    try:
        assert wrapped(home, 1, "sh", "-c", told, HACPO_GPUS=name).wait(20) == 0
        [log] = (home / "logs" / "runs").iterdir()
        assert f"visible {name}\n" in log.read_text()
        assert (GPU_FOLDER / name).exists()
    finally:
        (GPU_FOLDER / name).unlink(missing_ok=True)


def test_the_workers_temporary_folder_is_not_the_runs(home: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "tmpabcprefect"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "flows.slots", "0", "--", "sh", "-c", "pwd"],
        cwd=temporary,
        env=environment(home),
        check=True,
    )
    assert done.returncode == 0
    [log] = (home / "logs" / "runs").iterdir()
    assert str(home) in log.read_text().splitlines()


@LINUX_ONLY
def test_stop_ends_runs_that_outlived_their_worker(home: Path) -> None:
    run = wrapped(home, 1, sys.executable, "-c", FAMILY)
    assert soon((home / "ready").exists)
    live = working(home)
    run.kill()
    run.wait()
    command = [sys.executable, "infra/services.py"]
    settings = {"cwd": CHECKOUT, "env": environment(home), "text": True}
    shown = subprocess.check_output([*command, "status"], **settings)  # type: ignore[call-overload]
    assert f"run {live.id} cpu0" in shown
    told = subprocess.check_output([*command, "stop"], **settings)  # type: ignore[call-overload]
    assert told == "Stopped: runs without a worker (1)\n"
    assert sleepers(home) == set()
    assert live_runs(home) == []
