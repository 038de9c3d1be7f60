"""What a training tells the registry, under its lease."""

from hacpo.cells import run_cell_spec
from hacpo.checkpoints import Written
from hacpo.config import RunConfig
from hacpo.lease import Lease
from hacpo.places import home
from hacpo.registry import LOST, RUN, Claim, Registry
from hacpo.settings import AgentConfig
from hacpo.types import Evaluation, StepSummary


class CellRecorder:
    """`hacpo.run.Recorder` over the registry; every write proves that the lease still holds."""

    def __init__(self, registry: Registry, claim: Claim, config: RunConfig, lease: Lease) -> None:
        self._registry = registry
        self._claim = claim
        self._lease = lease
        self._initial_keys = {
            name: _initial_key(config, name, agent) for name, agent in config.agents.items()
        }

    def step(self, summary: StepSummary) -> None:
        self._lease.wanted = self._registry.record_step(self._claim, summary)

    def is_wanted(self) -> bool:
        return self._lease.wanted in (RUN, LOST)  # a lost lease is told by the next write

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


def _initial_key(config: RunConfig, name: str, agent: AgentConfig) -> str:
    """Key of the `initial` cell of one agent: what its evaluation before training depends on."""
    alone = config.model_copy(update={"agents": {name: agent}, "method": "initial"})
    return run_cell_spec(alone, home()).key
