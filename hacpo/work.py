"""Working on a cell: claim it, keep its lease, train it, record it, finish or hand it back."""

import contextlib
import logging
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import yaml

from hacpo.cells import run_cell_spec
from hacpo.checkpoints import model_folder
from hacpo.config import RunConfig
from hacpo.deliver import mark_sent, mark_unsent
from hacpo.errors import DataError, HacpoError, LeaseLostError
from hacpo.failures import classify
from hacpo.lease import LEASE_SECONDS, LEAVING_SECONDS, hold_folder, hold_lease
from hacpo.ledger import storage_errors
from hacpo.loop import LOCAL, Phases, train_run
from hacpo.models.resolve import ensure_models
from hacpo.places import code_version, home, run_folder, run_id_of
from hacpo.preflight import tracking_uri
from hacpo.recorder import CellRecorder
from hacpo.registry import Claim, Registry
from hacpo.run import Run, close_run, start_run
from hacpo.tracking import Tracker

logger = logging.getLogger(__name__)

LOG_NAME = "run.log"
PATIENCE_SECONDS = float(os.environ.get("HACPO_PATIENCE_SECONDS", "900"))
"""How long a training waits for the registry's database when it is away, before it fails."""
DRAIN_SECONDS = 30.0
"""How long a finished run waits for MLflow to take its last events; the rest stays in the spool."""


def claim_cell(
    registry: Registry,
    *,
    sweep: str | None = None,
    cell_key: str | None = None,
    gpus: int | None = None,
    prefect_flow_run_id: str | None = None,
) -> Claim | None:
    """The next cell to work on, or None; it is this process's until its lease is not renewed.

    A cell whose holder died on this machine is free at once, without waiting for its lease to pass.

    Args:
        registry: open.
        sweep: only its cells; otherwise those of all sweeps, in the registry's order.
        cell_key: only this cell.
        gpus: only cells that want so many.
        prefect_flow_run_id: of the flow that works on it.
    """
    free_dead(registry)
    return registry.claim(
        f"{socket.gethostname()}:{os.getpid()}",
        sweep=sweep,
        cell_key=cell_key,
        gpus=gpus,
        lease_seconds=LEASE_SECONDS,
        host=socket.gethostname(),
        pid=os.getpid(),
        code_version=code_version(),
        prefect_flow_run_id=prefect_flow_run_id,
    )


def _check_inputs(config: RunConfig, key: str) -> None:
    """Refuse to train under a key what is not what was queued under it.

    Raises:
        DataError: models, problems, benchmarks or the version differ here.
    """
    if run_cell_spec(config, home()).key != key:
        raise DataError(
            "what this cell reads is not here as it was where it was queued: a model, a problem "
            "file, a benchmark, a reward's source or the version of hacpo differs; make them the "
            "same on every machine, or submit the grid again"
        )


def free_dead(registry: Registry) -> None:
    """End the leases of processes of this machine that are gone."""
    for held in registry.held():
        if held.host == socket.gethostname():
            try:
                os.kill(held.pid, 0)
            except ProcessLookupError:
                if registry.end_lease(held.key, held.holder):
                    logger.warning(
                        "%s: %s is gone, the cell is free again", held.label, held.holder
                    )
            except PermissionError:
                pass  # alive, somebody else's


def work_on(
    registry: Registry, claim: Claim, *, phases: Phases = LOCAL, offline: bool = False
) -> bool:
    """Train a claimed cell to its end.

    An error of the cell is recorded and raised; an interruption (SIGTERM, Ctrl-C) hands the cell
    back to the queue, where it resumes from its newest checkpoint. So does a pause or cancellation
    of its sweeps, at a step boundary, with a checkpoint of there.

    Returns:
        Whether the cell is done; False: it was handed back on demand.
    """
    run_id = run_id_of(claim.cell_key)
    registry.wait_for_database(PATIENCE_SECONDS)
    try:
        with hold_lease(registry, claim) as lease, hold_folder(run_folder(run_id)), _log(run_id):
            tell = lease.tell
            _miss_checkpoints(registry, claim)
            config = RunConfig.model_validate(claim.config)
            _check_inputs(config, claim.cell_key)
            registry.start_step_total(claim, 0 if config.rule == "initial" else config.steps)
            ensure_models([a.model for a in config.agents.values()], home(), tell)
            with _tracking(run_id, config, offline=offline) as tracker:
                _introduce(tracker, claim, config)
                recorder = CellRecorder(registry, claim, config, lease)
                tell("loading")
                run = start_run(run_id, config, tracker=tracker, recorder=recorder, progress=tell)
                tell("")
                finished = train_run(run_id, phases)
                if finished:
                    tell("finishing")
                    _conclude(registry, claim, run, tracker)
                else:
                    logger.info("%s: handed back (%s)", claim.label, lease.wanted)
                    tracker.finish("KILLED")
        if finished:
            registry.finish(claim)
        else:
            registry.release(claim)
        return finished
    except LeaseLostError:
        raise
    except Exception as error:
        failure = classify(error)
        with contextlib.suppress(LeaseLostError):  # whoever has the cell now decides about it
            registry.fail(claim, failure.kind, failure.message, requeue=failure.retry)
        raise
    except BaseException:
        registry.wait_for_database(LEAVING_SECONDS)
        with contextlib.suppress(HacpoError):
            registry.release(claim)
        raise
    finally:
        close_run(run_id)


@contextlib.contextmanager
def _tracking(run_id: str, config: RunConfig, *, offline: bool) -> Iterator[Tracker]:
    """The run's tracker, closed while its folder is still held: the next holder reads the spool."""
    folder = run_folder(run_id)
    uri = None if offline else tracking_uri(config)
    tracker = Tracker(folder, uri)
    if uri:
        mark_unsent(folder)
    patience = DRAIN_SECONDS
    try:
        yield tracker
    except LeaseLostError:
        patience = 0.0  # another process waits for the folder
        raise
    except Exception:
        with contextlib.suppress(HacpoError):  # what failed is told, not that the disk is full, too
            tracker.finish("FAILED")
        raise
    except BaseException:
        patience = LEAVING_SECONDS
        raise
    finally:
        unsent = tracker.close(patience)
        if unsent:
            logger.warning("%d events for MLflow wait in %s", unsent, folder)
        elif uri:
            mark_sent(folder)


def forget_results(registry: Registry, cell_key: str) -> None:
    """Remove a cell's results and files so that it is done again (`--fresh`)."""
    registry.clear_cell(cell_key)
    shutil.rmtree(run_folder(run_id_of(cell_key)), ignore_errors=True)


@contextlib.contextmanager
def _log(run_id: str) -> Iterator[None]:
    """Keep what is logged during a cell in its folder, for `hacpo cell logs`."""
    with storage_errors(run_folder(run_id)):
        handler = logging.FileHandler(run_folder(run_id) / LOG_NAME)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    package = logging.getLogger("hacpo")
    level = package.level
    package.setLevel(min(logging.INFO, package.getEffectiveLevel()))
    package.addHandler(handler)
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(level)
        handler.close()


def _miss_checkpoints(registry: Registry, claim: Claim) -> None:
    """Say so when an earlier attempt's checkpoints cannot be seen from here."""
    known = registry.cell(claim.cell_key).checkpoints
    if known and not any(Path(checkpoint.path).is_dir() for checkpoint in known):
        logger.warning(
            "%s starts from its first step: its checkpoint %s is not on this machine; let machines "
            "share HACPO_RUNS to resume each other's cells",
            *(claim.label, known[-1].path),
        )


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
