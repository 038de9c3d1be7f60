"""What goes wrong. Each fault strikes once and is over, or mended, some seconds later."""

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from hacpo.registry import Registry
from tests.chaos.stage import Stage


def kill_engine(stage: Stage, random: Random) -> str:
    """kill -9 of a process that trains."""
    pid = _engine(stage, random)
    _kill(pid)
    return f"engine {pid}"


def kill_worker(stage: Stage, random: Random) -> str:
    """kill -9 of the worker alone; another one is started."""
    pid = _service(stage, "worker-cells")
    _kill(pid)
    time.sleep(random.uniform(0, 3))
    stage.restart_services()
    return f"worker {pid}"


def kill_tree(stage: Stage, random: Random) -> str:
    """kill -9 of both workers and everything that they started, as when a machine goes away."""
    servers = {_service(stage, name) for name in ("prefect", "mlflow")}
    killed = 0
    for _ in range(3):  # what they start meanwhile, too
        for pid in _processes(stage):
            if not servers & set(_ancestors(pid)):
                _kill(pid)
                killed += 1
    time.sleep(random.uniform(0, 3))
    stage.restart_services()
    return f"{killed} processes"


def kill_prefect(stage: Stage, random: Random) -> str:
    return _kill_server(stage, random, "prefect")


def kill_mlflow(stage: Stage, random: Random) -> str:
    return _kill_server(stage, random, "mlflow")


def restart_postgres(stage: Stage, random: Random) -> str:
    """The registry's database crashes and is away for a while."""
    assert stage.postgres is not None
    stage.postgres.stop()
    seconds = random.uniform(*stage.outage)
    time.sleep(seconds)
    stage.postgres.start()
    return f"away {seconds:.0f} s"


def fill_disk(stage: Stage, random: Random) -> str:
    """Files of the training process cannot grow over 4 KiB for a while."""
    pid = _engine(stage, random)
    seconds = random.uniform(1, 4)
    limit = (4096, resource.RLIM_INFINITY)
    with suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
        time.sleep(seconds)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    return f"engine {pid} for {seconds:.0f} s"


FAULTS: dict[str, Callable[[Stage, Random], str]] = {
    "engine": kill_engine,
    "worker": kill_worker,
    "tree": kill_tree,
    "prefect": kill_prefect,
    "mlflow": kill_mlflow,
    "postgres": restart_postgres,
    "disk": fill_disk,
}


def _kill_server(stage: Stage, random: Random, name: str) -> str:
    pid = _service(stage, name)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    seconds = random.uniform(*stage.outage)
    time.sleep(seconds)
    stage.restart_services()
    return f"away {seconds:.0f} s"


def _engine(stage: Stage, random: Random) -> int:
    with Registry.open(stage.registry_url) as registry:
        held = registry.held()
    assert held, "nothing is running"
    return random.choice(held).pid


def _service(stage: Stage, name: str) -> int:
    return int((stage.folder / "pids" / name).read_text().split()[0])


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _processes(stage: Stage) -> Iterator[int]:
    """Every process of this platform."""
    mark = f"HACPO_HOME={stage.folder}\0".encode()
    for path in Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        if pid != os.getpid():
            with suppress(OSError):
                if mark in (path / "environ").read_bytes() + b"\0":
                    yield pid


def _ancestors(pid: int) -> Iterator[int]:
    """The process itself, its parent, and so on."""
    while pid > 1:
        yield pid
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return


def engines(stage: Stage) -> dict[int, str]:
    """Processes that run a flow, and which run of it."""
    found = {}
    for pid in _processes(stage):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            for variable in variables:
                name, _, value = variable.partition(b"=")
                if name == b"PREFECT__FLOW_RUN_ID" and b"prefect.engine" in words:
                    found[pid] = value.decode()
    return found
