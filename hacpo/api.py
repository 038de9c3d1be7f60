"""`hacpo.train`: one training from Python, the same as `hacpo run` and as a cell of a grid."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hacpo.cells import run_cell_spec
from hacpo.checkpoints import latest_checkpoint, model_folder
from hacpo.config import RUNS, RunConfig
from hacpo.errors import RegistryError
from hacpo.ledger import Ledger
from hacpo.phases.benchmarks import read_benchmarks
from hacpo.phases.evaluate import read_evaluations
from hacpo.places import default_registry_url, home, run_folder, run_id_of
from hacpo.preflight import preflight
from hacpo.presets import load_run
from hacpo.registry import RUN, Registry
from hacpo.types import CellSpec, Evaluation, StepSummary
from hacpo.work import claim_cell, forget_results, work_on


@dataclass(frozen=True, slots=True)
class Result:
    """A finished training."""

    cell: CellSpec
    config: RunConfig
    folder: Path

    def steps(self) -> list[StepSummary]:
        """Every step's summary, with each agent's metrics."""
        ledger = Ledger(self.folder)
        return [ledger.read_summary(step) for step in ledger.steps()]

    def evaluations(self, agent: str, step: int | None = None) -> list[Evaluation]:
        """Held-out evaluations of an agent; `step` None is after training, 0 before."""
        return read_evaluations(self.folder, self.config.steps if step is None else step, agent)

    def benchmarks(self, agent: str, step: int | None = None) -> list[Evaluation]:
        """An agent on `evaluate.benchmarks`; `step` None is after training, 0 before."""
        return read_benchmarks(self.folder, self.config.steps if step is None else step, agent)

    def model(self, agent: str) -> Path:
        """Folder of the trained model, for `AutoModelForCausalLM.from_pretrained`."""
        checkpoint = latest_checkpoint(self.folder / "checkpoints")
        if checkpoint is None:
            raise RegistryError(
                f"{self.folder}: no complete checkpoint is left; train it again, fresh"
            )
        return model_folder(checkpoint.path, agent)


def train(
    config: str | Path | Mapping[str, Any],
    *,
    overrides: Iterable[str] = (),
    agent: str | None = None,
    offline: bool = False,
    fresh: bool = False,
) -> Result:
    """Train one config to its end, or return at once if the registry knows it as done.

    Args:
        config: YAML file, or the same as a mapping.
        overrides: `dotted.key=value`.
        agent: train this agent of the config alone (single-agent methods).
        offline: don't contact MLflow; its events stay in the run's folder.
        fresh: forget an earlier result of the same work.
    Raises:
        HacpoError: whatever a person has to mend, before any compute where that is possible.
    """
    run_config = load_run(config, overrides, agent)
    cell = run_cell_spec(run_config, home())
    preflight(run_config, home(), offline=offline)
    with Registry.open(default_registry_url()) as registry:
        if fresh:
            forget_results(registry, cell.key)
        registry.register_sweep(
            RUNS, owner="", config={}, cells=[cell], prefect_flow_run_id=None, replace=False
        )
        registry.want(RUNS, RUN)
        claim = claim_cell(registry, cell_key=cell.key)
        if claim is not None:
            if not work_on(registry, claim, offline=offline):
                raise RegistryError(
                    f"{cell.label} was asked to stop and has a checkpoint; run it again to go on"
                )
        else:
            _must_be_done(registry, cell)
    return Result(cell, run_config, run_folder(run_id_of(cell.key)))


def _must_be_done(registry: Registry, cell: CellSpec) -> None:
    view = registry.cell(cell.key).cell
    if view.state != "done":
        raise RegistryError(
            f"{cell.label} is {view.state} ({view.holder or view.error or 'nobody holds it'}); "
            "wait for it, or see `hacpo status`"
        )
