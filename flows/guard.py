"""The process that holds a run's slots, runs its command, and ends whatever that leaves behind.

It ends its command when it gets SIGTERM or SIGINT, or, once the worker is gone and can't cancel the
run any more, when Prefect says that the run is cancelled (flows/orphan.py). Should the guard itself
be killed, the command is asked to end, and what remains keeps the slots until it is gone: it
inherited the locks.
"""

import contextlib
import logging
import os
import select
import signal
import subprocess
import time
import traceback
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

from flows import prefect_http
from flows.orphan import Orphan
from flows.running import LiveRun, Registration
from flows.tree import adopt_orphans, collect, end_descendants, end_with
from hacpo.errors import HacpoError
from hacpo.slots import Slots, Taker

# Together below the 30 s after which Prefect gives up on a run that it cancels.
ENGINE_SECONDS = 20.0
LEFTOVER_SECONDS = 5.0
FIRST_SIGN_SECONDS, SIGN_SECONDS = 5.0, 120.0
"""A run that waits for slots says so in its log in Prefect after so long, and again after so long:
what `flows.runs.silent_seconds` looks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the relay has prepared."""

    command: list[str]
    home: Path
    log: Path
    run: LiveRun
    slots: Slots
    taker: Taker
    registration: Registration


def guard(job: Job, relay: int, blocked: Collection[signal.Signals]) -> NoReturn:
    """Be the guard, in a forked process; `relay` is a pipe whose other end the relay holds."""
    code = 1
    try:
        os.setsid()
        _write_to(job.log)
        adopt_orphans()
        code = _guard(job, relay, blocked)
    except SystemExit as stopped:
        code = int(str(stopped.code))
    except HacpoError as error:
        _say(str(error))
        code = 2
    except BaseException:
        _say(traceback.format_exc())
        end_descendants(ENGINE_SECONDS)
    finally:
        job.registration.remove()
        os._exit(code)


def _guard(job: Job, relay: int, blocked: Collection[signal.Signals]) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
    run = replace(job.run, guard=os.getpid())
    job.registration.write(run)
    held = _wait_for_slots(job)
    inbox = Inbox(relay, run.id)
    engine = _start(job, held)
    run = replace(run, slots=tuple(held), engine=engine.pid)
    job.registration.write(run)
    _say(f"process {engine.pid} on {', '.join(held) or 'no slot'}: {' '.join(job.command)}")
    code = _watch(engine, inbox)
    left = end_descendants(LEFTOVER_SECONDS)
    _say(f"ended with {code}" + (f"; {left} processes that it left were ended" if left else ""))
    if inbox.orphan:
        inbox.orphan.report(code)
    return code


def _wait_for_slots(job: Job) -> dict[str, int]:
    """Take the slots; meanwhile Prefect is told that this run, which is PENDING there, still waits.

    By an alarm, not a thread: what is forked later must not find a lock held.
    """
    run = job.run
    waiting = f"waiting for {run.asked} of {len(job.slots.names)} slots"
    signs = 0

    def give_sign(number: int, frame: FrameType | None) -> None:
        nonlocal signs
        signs += 1
        told = _check_wanted(run.id) and prefect_http.log(
            run.id, waiting, level=logging.INFO, tries=1
        )
        # Soon after Prefect is back: there, whoever gives no sign for long is taken for dead.
        signal.setitimer(signal.ITIMER_REAL, SIGN_SECONDS if told else FIRST_SIGN_SECONDS)

    if run.asked:
        _say(waiting)
        signal.signal(signal.SIGALRM, give_sign)
        signal.setitimer(signal.ITIMER_REAL, FIRST_SIGN_SECONDS)
    try:
        held = job.taker.take(f"run {run.id}, process {os.getpid()}, user {os.getuid()}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if signs:
        _check_wanted(run.id)
    return held


def _check_wanted(flow_run_id: str) -> bool:
    """Leave if the run was ended in Prefect meanwhile; False if Prefect doesn't say."""
    kind, _ = prefect_http.state_of(flow_run_id, tries=1)
    if kind not in ("", "PENDING"):
        _say(f"Prefect says {kind}: nothing is started")
        raise SystemExit(128 + signal.SIGTERM)
    return bool(kind)


def _leave(number: int, frame: FrameType | None) -> None:
    """Nothing has been started yet."""
    _say(f"{signal.Signals(number).name} while waiting for slots")
    raise SystemExit(128 + number)


class Inbox:
    """Signals to this process, and the end of the relay, whichever comes first."""

    def __init__(self, relay: int, flow_run_id: str) -> None:
        self.orphan: Orphan | None = None
        self._flow_run_id = flow_run_id
        self._relay = relay
        self._signals, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)

    def wait(self, seconds: float | None) -> set[int]:
        """The signals that came."""
        watched = [self._signals] if self.orphan else [self._signals, self._relay]
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._relay in ready:
            self.orphan = Orphan(self._flow_run_id, _say)
            _say("the worker is gone; this run goes on")
        return set(os.read(self._signals, 4096)) if self._signals in ready else set()


def _start(job: Job, held: dict[str, int]) -> "subprocess.Popen[bytes]":
    environment = dict(os.environ)
    if held:  # without a slot a run may look at the GPUs (a grid does), but not work on them
        environment["HACPO_SLOT"] = ",".join(held)
        if job.slots.are_gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(held)
    me = os.getpid()
    return subprocess.Popen(
        job.command,
        cwd=_lasting_folder(job.home),
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[*held.values(), job.registration.descriptor],
        preexec_fn=lambda: end_with(me),
    )


def _lasting_folder(home: Path) -> Path | None:
    """None for the current one; but the temporary one of a worker is removed with the worker."""
    try:
        name = Path.cwd().name
    except FileNotFoundError:
        return home
    return home if name.startswith("tmp") and name.endswith("prefect") else None


def _watch(engine: "subprocess.Popen[bytes]", inbox: Inbox) -> int:
    """Wait for the end of the command, or bring it about; returns its exit code."""
    kill_at: float | None = None
    while True:
        collect(keep=engine.pid)
        if (status := engine.poll()) is not None:
            return status if status >= 0 else 128 - status
        if kill_at is None:
            pause = inbox.orphan.pause if inbox.orphan else None
            received = inbox.wait(pause) - {signal.SIGCHLD}
            ended = engine.poll() is not None  # what it told Prefect of that is true
            if inbox.orphan and not received and not ended and inbox.orphan.look():
                received.add(signal.SIGTERM)
            if received:
                number = signal.Signals(min(received))
                _say(f"{number.name}: asked to end, killed after {ENGINE_SECONDS:.0f} s")
                engine.send_signal(number)
                kill_at = time.monotonic() + ENGINE_SECONDS
        elif (left := kill_at - time.monotonic()) > 0:
            inbox.wait(left)
        else:
            engine.kill()
            inbox.wait(1.0)


def _write_to(log: Path) -> None:
    """Nothing below may hold the worker's pipes: it would wait for their end."""
    for path, flags, descriptors in ((os.devnull, os.O_RDONLY, (0,)), (log, _APPEND, (1, 2))):
        opened = os.open(path, flags)
        for descriptor in descriptors:
            os.dup2(opened, descriptor)
        os.close(opened)


_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def _say(text: str) -> None:
    """A line in the run's log; a full disk must not keep the guard from its work."""
    with contextlib.suppress(OSError):
        os.write(1, f"{datetime.now():%H:%M:%S} | slots | {text}\n".encode())
