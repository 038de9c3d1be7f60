"""`hacpo-experiment`: works on cells of the queue, one after another, in one warm process."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from flows.links import artifact_key, cell_links, mlflow_experiment_url
from flows.log import Log
from flows.parameters import AtLeastOne, NotNegative
from flows.runs import AWAY, rename
from hacpo.errors import HacpoError, LeaseLostError
from hacpo.places import default_registry_url
from hacpo.registry import Claim, Registry


@flow(name="hacpo-experiment", retries=0, persist_result=False)
def hacpo_experiment(
    sweep: str = "",
    limit: AtLeastOne = 1,
    gpus: NotNegative | None = None,
) -> State[Any]:
    """Claim cells of the queue and train them.

    Args:
        sweep: Only cells of this sweep; otherwise of all, in the registry's order.
        limit: Cells to work on at most; the run ends earlier when none is left.
        gpus: Only cells that want so many devices.
    """
    # Loads torch: the deployment must not, and a grid's process imports this package too.
    from flows.phases import PREFECT
    from hacpo.work import PATIENCE_SECONDS, claim_cell, work_on

    log = get_run_logger()
    run_id = flow_run.get_id()
    done, failed = 0, []
    with Registry.open(default_registry_url()) as registry:
        registry.wait_for_database(PATIENCE_SECONDS)
        for _ in range(limit):
            claim = claim_cell(registry, sweep=sweep or None, gpus=gpus, prefect_flow_run_id=run_id)
            if claim is None:
                break
            with _told(log):
                rename(run_id, f"{claim.label} ({claim.sweep})")
            log.info("%s: attempt %d", claim.label, claim.attempt)
            try:
                done += work_on(registry, claim, phases=PREFECT, offline=claim.offline)
            except LeaseLostError as error:  # someone else works on it now
                log.warning("%s", error)
            except Exception as error:
                log.log(logging.ERROR, "%s: %s", claim.label, error, exc_info=_surprising(error))
                failed.append(f"{claim.label}: {_one_line(error)}")
            with _told(log):
                _link(registry, claim)
    if failed:
        return Failed(message="; ".join(failed))
    return Completed(message=f"{done} cells done" if done else "no cell was left to work on")


@contextlib.contextmanager
def _told(log: Log) -> Iterator[None]:
    """Prefect's pages are for people: training goes on without its server."""
    try:
        yield
    except HacpoError:
        raise
    except AWAY as error:
        log.warning("Prefect was not told: %s", error)


def _surprising(error: Exception) -> bool:
    """Whether its traceback helps: a HacpoError says it all in one line."""
    return not isinstance(error, HacpoError)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _link(registry: Registry, claim: Claim) -> None:
    """Show what became of the cell, and where its curves are."""
    cell = registry.cell(claim.cell_key).cell
    config = claim.config
    links = cell_links(cell, mlflow_experiment_url(config["name"], config["tracking"]["uri"]))
    lines = [f"**{claim.label}** of sweep {claim.sweep}: {cell.state}", *links.values()]
    create_markdown_artifact(
        key=artifact_key("cell", claim.cell_key[:12]), markdown="\n\n".join(lines)
    )
