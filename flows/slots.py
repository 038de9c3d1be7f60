"""`python -m flows.slots N -- COMMAND`: COMMAND on N slots of this machine, and nothing left of it.

The work pools start every run so (infra/pools.py). Under the worker there are two processes: a
relay, the worker's child, which only passes signals on and waits; and a guard, in a session of its
own, which holds the slots, runs the command and ends whatever it leaves (flows/guard.py). Prefect's
worker kills its children when it is restarted, and that is the relay alone: the run goes on. A
cancelled run gets SIGTERM through the relay. Exits as the command does (128 + N after signal N),
with 2 and one line for what a person must repair. Loads no Prefect.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from flows import prefect_http
from flows.guard import ENGINE_SECONDS, Job, guard
from flows.running import LiveRun, Registration
from flows.tree import adopt_orphans, end_descendants
from hacpo.errors import ConfigError, HacpoError, StorageError
from hacpo.slots import NO_SLOTS, Taker, machine_slots

WATCHED = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
USAGE = "python -m flows.slots N -- COMMAND [ARGUMENT ...]"


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    flow_run_id = os.environ.get("PREFECT__FLOW_RUN_ID", "")
    try:
        job = prepare(arguments, flow_run_id)
    except HacpoError as error:
        print(error, file=sys.stderr)
        prefect_http.log(flow_run_id, str(error))
        return 2
    print(f"Log: {job.log}", flush=True)
    # A signal that comes while there is nobody yet to pass it on to waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    alive, keep = os.pipe()
    guard_pid = os.fork()
    if guard_pid == 0:
        os.close(keep)
        guard(job, alive, WATCHED)
    os.close(alive)
    return relay(guard_pid, {signal.SIGTERM} if flow_run_id else {signal.SIGTERM, signal.SIGINT})


def prepare(arguments: Sequence[str], flow_run_id: str) -> Job:
    """Everything that can be wrong is found here, while there is someone to be told."""
    count, *rest = arguments or [""]
    if not count.isdecimal() or len(rest) < 2 or rest[0] != "--":
        raise ConfigError(f"{' '.join(arguments) or 'no arguments'}: use {USAGE}")
    if not os.environ.get("HACPO_HOME"):
        raise ConfigError("HACPO_HOME is not set: start the worker after `source .hacpo/env`")
    home = Path(os.environ["HACPO_HOME"]).absolute()
    run = LiveRun(id=flow_run_id or f"pid-{os.getpid()}", asked=int(count))
    # Who asks for none needn't know them.
    slots = machine_slots(home, os.environ) if run.asked else NO_SLOTS
    log = home / "logs" / "runs" / f"{run.id}.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.open("ab").close()
    except OSError as error:
        raise StorageError(f"{log}: {error.strerror}: set HACPO_HOME") from error
    return Job(
        command=rest[1:],
        home=home,
        log=log,
        run=run,
        slots=slots,
        taker=Taker(slots, run.asked),
        registration=Registration(home, run),
    )


def relay(guard_pid: int, passed_on: set[signal.Signals]) -> int:
    """Pass signals on to the guard until it ends; returns its exit code.

    Ctrl-C in a worker's terminal reaches this process, too, but is meant for the worker.
    """
    adopt_orphans()
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        number = signal.sigwait(WATCHED)
        if number in passed_on:
            os.kill(guard_pid, number)
        elif number == signal.SIGCHLD:
            ended, status = os.waitpid(guard_pid, os.WNOHANG)
            if ended:
                break
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        # The guard was killed. Its command has been asked to end by that, and is ours now.
        end_descendants(ENGINE_SECONDS, ask=False)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
