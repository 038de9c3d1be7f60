"""One worker process as its parent holds it: start, send, receive within a time, kill."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]


class WorkerProcess:
    """A running `hacpo.verifiers.worker` in a process group of its own.

    Args:
        log: gets what it prints; None: this process's stderr.

    Raises:
        OSError: the machine cannot start a process now.
    """

    def __init__(self, log: Path | None = None) -> None:
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with open(log, "ab") if log else contextlib.nullcontext() as printed:
            self._process = subprocess.Popen(
                # -P: a `json.py` in the working directory must not replace the standard one
                [sys.executable, "-P", "-m", "hacpo.verifiers.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                bufsize=0,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin.fileno()
        self._replies = self._process.stdout.fileno()
        os.set_blocking(self._requests, False)
        self._received = b""

    @property
    def pid(self) -> int:
        """Process id, and id of its group."""
        return self._process.pid

    def send(self, message: object, seconds: float) -> None:
        """Write one line.

        Raises:
            TimeoutError: the worker did not take it in time.
            EOFError: the worker has ended.
        """
        data = memoryview(json.dumps(message).encode() + b"\n")
        deadline = time.monotonic() + seconds
        while data:
            _wait(self._requests, select.POLLOUT, deadline)
            try:
                data = data[os.write(self._requests, data) :]
            except BrokenPipeError:
                raise EOFError from None

    def receive(self, seconds: float) -> Any:
        """Read one line; raises as `send`."""
        deadline = time.monotonic() + seconds
        while True:
            line, newline, rest = self._received.partition(b"\n")
            if newline:
                self._received = rest
                return json.loads(line)
            _wait(self._replies, select.POLLIN, deadline)
            data = os.read(self._replies, 1 << 16)
            if not data:
                raise EOFError
            self._received += data

    def kill(self) -> None:
        """Kill the process and all it has started; `end` must follow."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> str:
        """Kill, wait and release; returns for people how it ended.

        After an EOFError that is how it ended by itself: a process past closing its files keeps
        its exit status.
        """
        self.kill()
        status = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return f"ended with exit code {status}" if status >= 0 else f"died of {_name(-status)}"


def _wait(descriptor: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
