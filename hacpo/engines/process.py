"""One sampling process as its parent holds it: start, request and reply, kill, last words."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import IO, Any

_ROOT = Path(__file__).resolve().parents[2]
_LOG_TAIL = 1 << 16
_MAX_REASON = 300
SILENT_SECONDS = float(os.environ.get("HACPO_ENGINE_SECONDS", "3600"))
"""A child that has not answered a request for so long hangs, and is ended."""


class ChildError(Exception):
    """The child refused a request, or ended; one line for people."""


class ChildProcess:
    """A running Python module that answers requests on a connection, in a session of its own.

    It ends with this process, however this process ends.

    Raises:
        ChildError: the machine cannot start a process now.
    """

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        self._words = ""
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        # On Linux a child also dies with the thread that started it: this one lives as long as
        # the child, a caller's thread may not.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        try:
            self._process = self._thread.submit(
                subprocess.Popen,
                # -P: a `json.py` in the working directory must not replace the standard one
                [sys.executable, "-P", "-m", module, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)},
            ).result()
        except OSError as error:
            self._connection.close()
            self._log.close()
            self._thread.shutdown()
            raise ChildError(f"cannot start a process: {error.strerror}") from None
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """Process id, and id of its group."""
        return self._process.pid

    def request(self, name: str, argument: Any = None, *, descriptor: int | None = None) -> Any:
        """Send a request, wait for its reply; a descriptor travels behind it.

        Raises:
            ChildError: the child refused, or ended; in the latter case `end` must follow.
        """
        try:
            self._connection.send((name, argument, descriptor is not None))
            if descriptor is not None:
                send_handle(self._connection, descriptor, self.pid)
            if not self._connection.poll(SILENT_SECONDS):
                self.end()
                raise ChildError(
                    f"no answer for {SILENT_SECONDS:.0f} s (HACPO_ENGINE_SECONDS); ended"
                )
            outcome, value = self._connection.recv()
        except (EOFError, OSError):
            raise ChildError(self.end()) from None
        if outcome == "error":
            raise ChildError(value)
        return value

    def end(self) -> str:
        """Kill the child with all it has started, and release; returns for people how it ended.

        After a lost connection that is how it ended by itself: a process past closing its files
        keeps its exit status. A second call does nothing.
        """
        if self._process.returncode is None:  # later the id may be another process's
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        status = self._process.wait()
        self._connection.close()
        self._thread.shutdown()
        if not self._log.closed:
            self._words = _last_words(self._log)
            self._log.close()
        how = f"ended with exit code {status}" if status >= 0 else f"died of {_name(-status)}"
        return f"{how}: {self._words}" if self._words else how


def _last_words(log: IO[bytes]) -> str:
    """The last line of a log that is not empty."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL))
    lines = [" ".join(line.split()) for line in log.read().decode(errors="replace").splitlines()]
    return next((line[:_MAX_REASON] for line in reversed(lines) if line), "")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
