"""Bytes that a run needs, agent by agent and together. Sizes are counted, nothing is loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hacpo.agents import check_room
from hacpo.config import RunConfig
from hacpo.errors import HacpoError
from hacpo.models.footprint import Footprint, Outline
from hacpo.models.head import SLICE_ELEMENTS
from hacpo.models.weights import LARGE_ELEMENTS
from hacpo.plan.workload import (
    Group,
    MicroBatch,
    evaluations,
    largest_micro_batch,
    longest_groups,
    training,
)
from hacpo.settings import AgentConfig

_FLOAT = 4
_MOMENTS = 2
"""Tensors of AdamW for each trained one."""
_SLICES = 4
"""Slices of logits that the output layer holds at a time (hacpo.models.head)."""
_LOGITS = 4
"""Float32 copies of a decoding step's logits (hacpo.engines.hf)."""
_GIB = 1 << 30
VLLM_PROCESS = _GIB
"""What a vLLM process on a CPU takes beside weights and cache."""


class DoesNotFitError(HacpoError):
    """A run that needs more memory than there is; the message names what must change."""


@dataclass(frozen=True, slots=True)
class AgentMemory:
    """Bytes of one agent, but for `parameters`, `trained` and `micro_tokens`."""

    parameters: int
    trained: int
    weights: int
    """Float32 weights that are trained, their copy in the computing dtype, buffers."""
    optimizer: int
    gradients: int
    activations: int
    """Of the largest backward pass, with the output layer's slices."""
    micro_tokens: int
    """Tokens of that pass."""
    passes: int
    """Of its update: only from the second on are there gradients beside activations."""
    cache: int
    """Key-value cache and logits of the rows that engine hf samples at a time, and on a CPU its
    packed copy of bfloat16 weights."""
    initial: int
    """The frozen initial policy, where a KL term or its metric needs it."""
    engine: int
    """A process of the engine's own."""
    loading: int
    """While its file is read: float32, whatever it becomes."""

    @property
    def resident(self) -> int:
        """As long as the agent is there."""
        return self.weights + self.optimizer + self.initial

    @property
    def passing(self) -> int:
        """The most that it needs beside that, in one phase or another."""
        both = self.gradients + self.activations
        one_pass = max(self.gradients, self.activations)  # one grows as the other shrinks
        return max(self.cache, both if self.passes > 1 else one_pass)


@dataclass(slots=True)
class Sizes:
    """Counts what configs of the same models need; remembers models, which take a second each.

    Args:
        folders: agent -> folder of its model.
        prompts: agent -> tokens of its longest prompt.
        held_out: problems of an evaluation.
    """

    folders: dict[str, str]
    prompts: dict[str, int]
    held_out: int
    gpu_bytes: int = 0
    """Of a whole GPU, for vLLM's share."""
    on_gpu: bool = False
    _outlines: dict[tuple[str, str], tuple[Outline, float]] = field(default_factory=dict)

    def agents(
        self, config: RunConfig, groups: Mapping[str, Sequence[Group]] | None = None
    ) -> dict[str, AgentMemory]:
        """Each agent's needs.

        Args:
            config: the run.
            groups: agent -> prompts and responses of a step as it reads them; None: the longest
                that the config allows.
        Raises:
            DataError: responses that an agent's model cannot take.
        """
        found = {}
        for name, agent in sorted(config.agents.items()):
            longest = longest_groups(config, self.prompts[name])
            outline, per_token = self._outline(name, agent, config, longest[0])
            check_room(name, config, self.prompts[name], outline.max_tokens)
            read = groups[name] if groups else longest
            micro = largest_micro_batch(config, read, outline.pack_tokens)
            found[name] = self._agent(name, config, outline.footprint, micro, per_token)
        return found

    def _outline(
        self, name: str, agent: AgentConfig, config: RunConfig, longest: Group
    ) -> tuple[Outline, float]:
        recompute = config.update.gradient_checkpointing
        key = self.folders[name], f"{agent.dtype} {agent.lora} {recompute} {longest}"
        if key not in self._outlines:
            outline = Outline(name, agent, self.folders[name], recompute=recompute)
            pack = largest_micro_batch(_one_problem(config), [longest], outline.pack_tokens).pack
            self._outlines[key] = outline, outline.activation_bytes(*pack)
        return self._outlines[key]

    def _agent(
        self,
        name: str,
        config: RunConfig,
        sizes: Footprint,
        micro: MicroBatch,
        per_token: float,
    ) -> AgentMemory:
        agent = config.agents[name]
        width = 2 if agent.dtype == "bfloat16" else _FLOAT
        copied = agent.dtype != "float32"
        weights = sizes.parameters * width + copied * sizes.trained * _FLOAT + sizes.buffer_bytes
        base = sizes.parameters - (sizes.trained if agent.lora else 0)
        needs_initial = config.algorithm.kl > 0 or config.tracking.kl_every > 0
        slices = max(SLICE_ELEMENTS, 256 * micro.tokens) * _FLOAT * _SLICES
        slices = min(slices, micro.tokens * sizes.vocabulary * _FLOAT * _SLICES)
        # A large one is added to where it belongs slice by slice (Weights.sink).
        head = 0 if sizes.largest >= LARGE_ELEMENTS else sizes.largest * width
        return AgentMemory(
            parameters=sizes.parameters,
            trained=sizes.trained,
            weights=weights,
            optimizer=sizes.trained * _FLOAT * _MOMENTS,
            # Of the output layer, and of the same weights as embedding, until they are added.
            gradients=sizes.trained * _FLOAT + sizes.largest * width,
            activations=int(per_token * micro.tokens) + slices + head,
            micro_tokens=micro.tokens,
            passes=micro.passes,
            cache=self._cache(name, config, sizes, width) if agent.engine == "hf" else 0,
            # It is read in float32, which training of all weights hides behind its gradients.
            initial=base * (_FLOAT if agent.lora else width) * needs_initial,
            engine=self._engine(config, sizes, width) if agent.engine == "vllm" else 0,
            loading=base * _FLOAT,
        )

    def _cache(self, name: str, config: RunConfig, sizes: Footprint, width: int) -> int:
        packed = sizes.parameters * width if width < _FLOAT and not self.on_gpu else 0
        logits = sizes.vocabulary * (_LOGITS * _FLOAT + (width if width < _FLOAT else 0))
        calls = evaluations(config, self.held_out)
        if config.rule != "initial":
            calls.append(training(config))
        return packed + max(
            (
                call.rows(config.rollout.batch_rows)
                * (sizes.cache_bytes * (self.prompts[name] + call.max_tokens) + logits)
                for call in calls
            ),
            default=0,
        )

    def _engine(self, config: RunConfig, sizes: Footprint, width: int) -> int:
        if self.on_gpu:
            return int(self.gpu_bytes * config.vllm.gpu_memory_fraction)
        cache = int((config.vllm.kv_cache_gb or 1.0) * _GIB)
        return sizes.parameters * width + cache + VLLM_PROCESS


def needed_on_one_device(agents: dict[str, AgentMemory], base: int, *, trains: bool = True) -> int:
    """Bytes of a run whose agents stay where they compute.

    Args:
        agents: of the run.
        base: of the process itself.
        trains: False for method initial, which only samples.
    """
    if not trains:
        weights = sum(a.weights + a.engine for a in agents.values())
        return base + weights + max(a.cache for a in agents.values())
    together = sum(a.resident + a.engine for a in agents.values())
    at_work = together + max(a.passing for a in agents.values())
    loaded, while_loading = 0, 0
    for agent in agents.values():
        while_loading = max(while_loading, loaded + agent.loading)
        loaded += agent.weights
    return base + max(at_work, while_loading)


def needed_offloaded(agents: dict[str, AgentMemory], base: int, *, trains: bool = True) -> int:
    """Bytes on a GPU whose agents leave it when they do nothing; one at a time is there.

    An engine with memory of its own takes it before the learner, whose weights it loads, has left;
    initial policies stay.
    """
    if not trains:
        return base + max(a.weights + max(a.cache, a.engine) for a in agents.values())
    initial = sum(a.initial for a in agents.values())
    return base + max(
        a.resident - a.initial + initial + max(a.passing, a.engine) for a in agents.values()
    )


def moved_off(agents: dict[str, AgentMemory]) -> int:
    """Bytes that agents away from a GPU take in the machine's memory."""
    return sum(a.weights + a.optimizer for a in agents.values())


def _one_problem(config: RunConfig) -> RunConfig:
    """One problem and no budget: its longest pack."""
    update = config.update.model_copy(update={"problems_per_step": 1, "micro_tokens": 1 << 40})
    return config.model_copy(update={"update": update})
