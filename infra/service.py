"""A service of ours: a process group with a log, a recorded leader, a port and a health check.

Standard library only.
"""

import base64
import os
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from processes import end_group, in_use, started_at, wait_until

CHECKOUT = Path(__file__).resolve().parent.parent
HOME = Path(os.environ.get("HACPO_HOME") or CHECKOUT / ".hacpo").absolute()
BIN = Path(sys.executable).parent
START_SECONDS = 120
LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServiceError(Exception):
    """One line for a person."""


def number(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ServiceError(f"{variable}={text} is not a number that can be used")
    return int(text)


@dataclass(frozen=True)
class Service:
    """One process group of ours; `pids/NAME` holds its leader, when that started, and its port."""

    name: str
    command: list[str]
    environment: dict[str, str]
    port: int | None = None
    port_variable: str = ""
    health: str = ""

    @property
    def log(self) -> Path:
        return HOME / "logs" / f"{self.name}.log"

    @property
    def pid_file(self) -> Path:
        return HOME / "pids" / self.name

    def pid(self) -> int | None:
        """The leader, if it is alive and the process that we started."""
        recorded = running(self.name)
        return recorded[0] if recorded else None

    def healthy(self) -> bool:
        if not self.health:
            return self.pid() is not None
        return answers(f"http://127.0.0.1:{self.port}{self.health}")

    def check_port(self) -> None:
        recorded = running(self.name)
        if recorded and recorded[1] != (self.port or 0):
            raise ServiceError(
                f"{self.name} already runs on port {recorded[1]}: "
                "`bash infra/quickstart.sh --stop` before moving it"
            )
        if self.port and not recorded and in_use(self.port):
            raise ServiceError(
                f"port {self.port} for {self.name} is in use by another program: "
                f"stop that one, or set {self.port_variable} to a free port"
            )

    def start(self) -> None:
        for folder in (self.log.parent, self.pid_file.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # A session of its own outlives this script, and Ctrl-C in its terminal.
            process = subprocess.Popen(
                self.command,
                cwd=CHECKOUT,
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid_file.write_text(f"{process.pid} {started_at(process.pid)} {self.port or 0}\n")

    def wait(self) -> None:
        wait_until(lambda: self.healthy() or self.pid() is None, START_SECONDS)
        if not self.healthy():
            tail = self.log.read_text(errors="replace").strip().splitlines()[-15:]
            raise ServiceError("\n".join([*tail, f"{self.name} did not start: see {self.log}"]))

    def stop(self) -> bool:
        """True if there was something to stop."""
        pid = self.pid()
        if pid is not None:
            # A worker that ends kills its flows at once; asked before, they hand their cells back.
            end_group(pid, members_first=self.port is None)
        self.pid_file.unlink(missing_ok=True)
        return pid is not None


def bring_up(stage: list[Service], started: list[Service]) -> None:
    """Start what does not run, and wait for all."""
    for service in stage:
        if service.pid() is None:
            started.append(service)
            service.start()
    for service in stage:
        service.wait()


def answers(url: str) -> bool:
    try:
        with LOCAL.open(urllib.request.Request(url, headers=credentials()), timeout=5):
            return True
    except urllib.error.HTTPError as error:
        if error.code == 401:
            raise ServiceError(f"{url} refuses us: check PREFECT_API_AUTH_STRING") from None
        return False
    except (OSError, ValueError):
        return False


def credentials() -> dict[str, str]:
    """For Prefect's API, where it wants some."""
    text = os.environ.get("PREFECT_API_AUTH_STRING")
    encoded = base64.b64encode((text or "").encode()).decode()
    return {"Authorization": f"Basic {encoded}"} if text else {}


def running(name: str) -> tuple[int, int] | None:
    """Process id and port of a service that is alive."""
    try:
        pid, started, port = (HOME / "pids" / name).read_text().split()
    except (OSError, ValueError):
        return None
    return (int(pid), int(port)) if started_at(int(pid)) == started else None


def write_private(path: Path, text: str) -> None:
    """For its owner alone: it may hold secrets."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
