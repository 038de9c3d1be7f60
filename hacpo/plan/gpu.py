"""What a grid's runs would take on a GPU: memory counted, hours estimated from arithmetic alone.

Nothing here was measured on a GPU: hours are multiplications and additions divided by what a GPU
does in a second, times the share of it that such work usually gets. Good for "a day or a month?".
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hacpo.benchmarks.catalogue import benchmark
from hacpo.config import JOINT_METHODS, RunConfig
from hacpo.models.hub import config_folder
from hacpo.models.identity import is_on_hub
from hacpo.models.resolve import resolve_model
from hacpo.places import home
from hacpo.plan.fit import GPU_CONTEXT, MARGIN
from hacpo.plan.memory import AgentMemory, Sizes, needed_offloaded, needed_on_one_device
from hacpo.plan.shapes import write_shape
from hacpo.settings import AgentConfig

SAMPLING, LEARNING = 0.10, 0.35
"""Share of a GPU's peak while it samples many rows at once, and while it scores and learns."""
_MANY = 10_000
"""Held-out problems: more than an engine takes at a time."""
SHARE_OF_LIMIT = 0.25
"""Mean length of a response over its limit, if nothing better is known."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A kind of GPU."""

    name: str
    flops: float
    """Of bfloat16 a second, dense."""
    memory: int
    """Bytes."""


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("a100", 312e12, 80 << 30),
        Gpu("h100", 989e12, 80 << 30),
        Gpu("h200", 989e12, 140 << 30),
        Gpu("b200", 2250e12, 180 << 30),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One run on one kind of GPU."""

    tokens: int
    """That it samples while it trains, at the assumed length."""
    hours: float
    """Of all GPUs that it holds: sampling, learning, benchmarks; no held-out evaluations."""
    memory: int
    """Bytes of one GPU, with responses as long as the config allows."""


class GpuPlanner:
    """Estimates the runs of a grid.

    Args:
        gpu: kind of GPU.
        response_tokens: mean length of a response; None: SHARE_OF_LIMIT of the limit.
        untrained_apart: the grid has cells of method `initial`, so trainings look their benchmarks
            before training up.
        tell: what takes time.
    """

    def __init__(
        self,
        gpu: Gpu,
        response_tokens: int | None = None,
        *,
        untrained_apart: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.gpu = gpu
        self.response_tokens = response_tokens
        self._untrained_apart = untrained_apart
        self._tell = tell
        self._temporary = tempfile.TemporaryDirectory(prefix="hacpo-plan-")
        self._folders: dict[tuple[str, str | None], str] = {}
        self._sizes = Sizes({}, {}, _MANY, gpu_bytes=gpu.memory, on_gpu=True)

    def estimate(self, config: RunConfig) -> Estimate:
        """Of one run.

        Raises:
            DataError: a model whose shape is not known.
        """
        agents, trains = self._memory(config), config.rule != "initial"
        needed = needed_on_one_device if config.offload is False else needed_offloaded
        tokens, work = 0, 0.0
        for agent in agents.values():
            sampled, done = self._training(config, agent)
            tokens += sampled
            work += done + self._benchmarks(config, agent)
        return Estimate(
            tokens=tokens,
            hours=work / self.gpu.flops / 3600 * max(config.gpus, 1),
            memory=int(MARGIN * needed(agents, GPU_CONTEXT, trains=trains)),
        )

    def _training(self, config: RunConfig, agent: AgentMemory) -> tuple[int, float]:
        """(tokens sampled, arithmetic at full speed) of one agent's training."""
        if config.rule == "initial":
            return 0, 0.0
        length = self._mean(config.rollout.max_response_tokens)
        rows = config.steps * config.update.problems_per_step * config.responses_per_problem
        sampled = rows * length
        consumed = sampled * (len(config.agents) if config.rule in JOINT_METHODS else 1)
        forward = 2.0 * agent.parameters
        # Scored by its own source, and by the initial policy; learned from with a backward pass of
        # twice a forward pass, which may be computed again.
        scored = sampled * (2 if config.algorithm.kl else 1)
        learned = consumed * (4 if config.update.gradient_checkpointing else 3)
        return sampled, forward * (sampled / SAMPLING + (scored + learned) / LEARNING)

    def _benchmarks(self, config: RunConfig, agent: AgentMemory) -> float:
        length = self._mean(config.evaluate.benchmark_tokens)
        sets = [benchmark(name) for name in config.evaluate.benchmarks]
        limit = config.evaluate.benchmark_limit
        answers = sum(
            min(each.sources[0].count, limit or each.sources[0].count) * each.samples
            for each in sets
        )
        times = 1 if config.rule == "initial" or self._untrained_apart else 2
        return 2.0 * agent.parameters * answers * length * times / SAMPLING

    def _mean(self, limit: int) -> int:
        return (
            min(self.response_tokens, limit)
            if self.response_tokens
            else int(limit * SHARE_OF_LIMIT)
        )

    def _memory(self, config: RunConfig) -> dict[str, AgentMemory]:
        for name, agent in config.agents.items():
            asked = agent.model, agent.revision
            if asked not in self._folders:
                self._folders[asked] = self._find(agent)
            self._sizes.folders[name] = self._folders[asked]
            self._sizes.prompts[name] = config.rollout.max_prompt_tokens
        return self._sizes.agents(config)

    def _find(self, agent: AgentConfig) -> str:
        if not is_on_hub(agent.model):
            return resolve_model(agent.model, agent.revision, home(), self._tell)
        shape = write_shape(agent.model, Path(self._temporary.name))
        return str(shape or config_folder(agent.model, agent.revision))
