"""Working on a cell: claim it, keep its lease, train it, record it, finish or hand it back."""

import contextlib
import fcntl
import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from hacpo.cells import run_cell_spec
from hacpo.checkpoints import Written, model_folder
from hacpo.config import RunConfig
from hacpo.errors import HacpoError, LeaseLostError, StorageError
from hacpo.ledger import storage_errors
from hacpo.loop import LOCAL, Phases, train_run
from hacpo.models.resolve import ensure_models
from hacpo.places import code_version, home, run_folder, run_id_of
from hacpo.preflight import tracking_uri
from hacpo.registry import CellView, Claim, Registry
from hacpo.run import Run, close_run, start_run
from hacpo.settings import AgentConfig
from hacpo.tracking import Tracker
from hacpo.types import Evaluation, StepSummary

logger = logging.getLogger(__name__)

LEASE_SECONDS = float(os.environ.get("HACPO_LEASE_SECONDS", "60"))
DRAIN_SECONDS = 30.0
"""How long a finished run waits for MLflow to take its last events; the rest stays in the spool."""


def claim_cell(
    registry: Registry,
    *,
    sweep: str | None = None,
    cell_key: str | None = None,
    prefect_flow_run_id: str | None = None,
) -> Claim | None:
    """The next cell to work on, or None; it is this process's until its lease is not renewed.

    A cell whose holder died on this machine is free at once, without waiting for its lease to pass.
    """
    if cell_key is not None:
        free_dead(registry, [registry.cell(cell_key).cell])
    elif sweep is not None:
        free_dead(registry, registry.sweep(sweep).cells)
    return registry.claim(
        f"{socket.gethostname()}:{os.getpid()}",
        sweep=sweep,
        cell_key=cell_key,
        lease_seconds=LEASE_SECONDS,
        host=socket.gethostname(),
        pid=os.getpid(),
        code_version=code_version(),
        prefect_flow_run_id=prefect_flow_run_id,
    )


def free_dead(registry: Registry, cells: list[CellView]) -> None:
    """End the leases of processes of this machine that are gone."""
    for cell in cells:
        if cell.state == "running" and cell.host == socket.gethostname() and cell.holder:
            try:
                os.kill(cell.pid or 0, 0)
            except ProcessLookupError:
                if registry.end_lease(cell.key, cell.holder):
                    logger.warning(
                        "%s: %s is gone, the cell is free again", cell.label, cell.holder
                    )
            except PermissionError:
                pass  # alive, somebody else's


def work_on(
    registry: Registry, claim: Claim, *, phases: Phases = LOCAL, offline: bool = False
) -> None:
    """Train a claimed cell to its end.

    An error of the cell is recorded and raised; an interruption (SIGTERM, Ctrl-C) hands the cell
    back to the queue, where it resumes from its newest checkpoint.
    """
    run_id = run_id_of(claim.cell_key)
    tracker = None
    try:
        with _lease(registry, claim) as tell, _alone(run_folder(run_id)):
            config = RunConfig.model_validate(claim.config)
            registry.start_step_total(claim, 0 if config.rule == "initial" else config.steps)
            ensure_models([a.model for a in config.agents.values()], home(), tell)
            tracker = Tracker(run_folder(run_id), tracking_uri(config), offline=offline)
            _introduce(tracker, claim, config)
            recorder = CellRecorder(registry, claim, config)
            tell("loading")
            run = start_run(run_id, config, tracker=tracker, recorder=recorder, progress=tell)
            tell("")
            train_run(run_id, phases)
            tell("finishing")
            _conclude(registry, claim, run, tracker)
        registry.finish(claim)
    except LeaseLostError:
        raise
    except Exception as error:
        if tracker is not None:
            tracker.finish("FAILED")
        kind = type(error).__name__.removesuffix("Error").lower()
        message = " ".join(str(error).split())[:500] or type(error).__name__
        registry.fail(claim, kind, message, requeue=not isinstance(error, HacpoError))
        raise
    except BaseException:
        with contextlib.suppress(HacpoError):
            registry.release(claim)
        raise
    finally:
        close_run(run_id)
        if tracker is not None:
            unsent = tracker.close(DRAIN_SECONDS)
            if unsent:
                logger.warning("%d events for MLflow wait in %s", unsent, run_folder(run_id))


class CellRecorder:
    """`hacpo.run.Recorder` over the registry; every write proves that the lease still holds."""

    def __init__(self, registry: Registry, claim: Claim, config: RunConfig) -> None:
        self._registry = registry
        self._claim = claim
        self._initial_keys = {
            name: _initial_key(config, name, agent) for name, agent in config.agents.items()
        }

    def step(self, summary: StepSummary) -> None:
        self._registry.record_step(self._claim, summary)

    def checkpoint(self, written: Written, removed: list[int]) -> None:
        self._registry.record_checkpoint(
            self._claim,
            written.step,
            path=str(written.path),
            bytes=written.bytes,
            sha256=written.sha256,
        )
        for step in removed:
            self._registry.forget_checkpoint(self._claim, step)

    def evaluation(self, evaluation: Evaluation) -> None:
        key = self._initial_keys[evaluation.agent] if evaluation.step == 0 else None
        self._registry.record_evaluation(self._claim, evaluation, identity_key=key)

    def earlier_evaluation(self, agent: str, task: str, protocol: str) -> Evaluation | None:
        return self._registry.find_evaluation(
            self._initial_keys[agent], task=task, protocol=protocol, agent=agent
        )


def forget_results(registry: Registry, cell_key: str) -> None:
    """Remove a cell's results and files so that it is done again (`--fresh`)."""
    registry.clear_cell(cell_key)
    shutil.rmtree(run_folder(run_id_of(cell_key)), ignore_errors=True)


def _initial_key(config: RunConfig, name: str, agent: AgentConfig) -> str:
    """Key of the `initial` cell of one agent: what its evaluation before training depends on."""
    alone = config.model_copy(update={"agents": {name: agent}, "method": "initial"})
    return run_cell_spec(alone, home()).key


@contextlib.contextmanager
def _lease(registry: Registry, claim: Claim) -> Iterator[Callable[[str], None]]:
    """Renew the lease from a thread; yields a function that tells people what takes time."""
    ended = threading.Event()
    told = {"activity": "", "sent": ""}

    def beat() -> None:
        due = time.monotonic() + LEASE_SECONDS / 4
        while not ended.wait(1.0):
            activity = told["activity"]
            if activity == told["sent"] and time.monotonic() < due:
                continue
            try:
                if not registry.heartbeat(claim, activity=activity):
                    logger.warning(
                        "%s: the lease is lost; this run stops at its next write", claim.label
                    )
                    return
                told["sent"] = activity
            except HacpoError as error:  # the step's own write decides; a beat may be missed
                logger.warning("lease not renewed: %s", error)
            due = time.monotonic() + LEASE_SECONDS / 4

    def tell(activity: str) -> None:
        told["activity"] = activity
        if activity:
            logger.info("%s: %s", claim.label, activity)

    thread = threading.Thread(target=beat, name="lease", daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep others out of a run's folder, such as an old holder that slept over its lease."""
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    with lock:
        deadline = time.monotonic() + LEASE_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StorageError(f"{folder}: another process still writes here") from None
                time.sleep(0.2)
            else:
                break
        yield


def _introduce(tracker: Tracker, claim: Claim, config: RunConfig) -> None:
    tags = {
        "hacpo.combination": "+".join(sorted(config.agents)),
        "hacpo.method": claim.label.partition(" ")[0],
        "hacpo.seed": str(config.seed),
        "hacpo.sweep": config.name,
        "hacpo.cell": claim.cell_key,
        "hacpo.code": code_version(),
    }
    tracker.start(
        experiment=config.name,
        run_name=claim.label,
        params=config.model_dump(mode="json"),
        tags=tags,
        agents={
            name: {"hacpo.agent": name, "hacpo.model": agent["model"]}
            for name, agent in claim.agents.items()
        },
        config_text=yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False),
    )


def _conclude(registry: Registry, claim: Claim, run: Run, tracker: Tracker) -> None:
    """Costs into the registry, the last checkpoint and the run's end to MLflow."""
    summaries = [run.ledger.read_summary(step) for step in run.ledger.steps()]
    for name in run.agents:
        own = [summary.agents[name] for summary in summaries]
        registry.record_cost(
            claim,
            name,
            rollouts_generated=sum(a.rollouts for a in own),
            rollouts_consumed=int(sum(a.metrics["rollouts/consumed"] for a in own)),
            tokens=sum(a.tokens for a in own),
            device_seconds=sum(summary.seconds for summary in summaries) / len(run.agents),
        )
        if run.config.tracking.artifacts == "final" and summaries:
            last = run.checkpoints / f"{run.state.step:06d}"
            tracker.log_artifact_folder(name, model_folder(last, name), "checkpoint")
    tracker.finish("FINISHED")
    # The artifact must be uploaded while its folder surely exists.
    tracker.flush(DRAIN_SECONDS)
    found = tracker.run_ids()
    if found is not None:
        registry.record_tracking(claim, found[0], found[1])
