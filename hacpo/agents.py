"""An agent with all that it needs: tokens, policy, learner, engine; and who has the device when."""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from hacpo.checkpoints import Written, model_folder, read_optimizer
from hacpo.config import RunConfig
from hacpo.engines.base import Engine
from hacpo.engines.hf import HFEngine
from hacpo.engines.vllm import VLLMEngine
from hacpo.errors import DataError
from hacpo.models.identity import model_identity
from hacpo.models.learner import Learner
from hacpo.models.load import load_policy
from hacpo.models.policy import Policy
from hacpo.models.resolve import resolve_model
from hacpo.models.tokens import AgentTokens, load_tokens
from hacpo.places import home
from hacpo.settings import AgentConfig

CPU = torch.device("cpu")


@dataclass(slots=True)
class Agent:
    """One agent, resident."""

    name: str
    seed_key: str
    """Stands for the agent in every seed: its model, not its name in some file."""
    tokens: AgentTokens
    policy: Policy
    learner: Learner
    engine: Engine
    device: torch.device
    offloads: bool
    """Leaves the device to others whenever it does nothing."""
    initial: Policy | None = None
    """The frozen initial policy, where something needs it."""
    engine_version: int = -1
    """`learner.version` of the weights that the engine has; -1: none."""

    @contextlib.contextmanager
    def sampling(self) -> Iterator[Engine]:
        """The engine, with the newest weights; one with memory of its own gets the device's."""
        with self.training():
            has_own = not self.engine.reads_policy
            if has_own and self.engine_version != self.learner.version:
                self.engine.load_weights(self.policy.engine_weights())
                self.engine_version = self.learner.version
            apart = self.offloads and has_own
            if apart:
                self.learner.move(CPU)
            try:
                yield self.engine
            finally:
                if apart:
                    self.engine.sleep()
                    self.engine_version = -1

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """Policy and learner on the device, for scoring and updates."""
        if self.offloads:
            self.learner.move(self.device)
        try:
            yield
        finally:
            if self.offloads:
                self.learner.move(CPU)
                if self.device.type == "cuda":
                    torch.cuda.empty_cache()  # for whoever is next, which may be another process
            if self.device.type == "cpu":
                trim()


def trim() -> None:
    """Return freed memory to the machine; where the C library cannot, nothing happens.

    Tensors of ever other sizes leave holes in its heap, and a run would grow from step to step.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def build_agents(
    config: RunConfig, checkpoint: Written | None, tell: Callable[[str], None]
) -> dict[str, Agent]:
    """Every agent of a run, from its model or from a checkpoint.

    Raises:
        ConfigError: an engine or adapters that cannot be had.
        DataError: a model or tokenizer that cannot be used.
    """
    devices = pick_devices(config.device)
    offloads = devices[0].type != "cpu" if config.offload == "auto" else config.offload
    seen: dict[str, int] = {}
    agents = {}
    for index, (name, agent) in enumerate(sorted(config.agents.items())):
        device = devices[index % len(devices)]
        origin = resolve_model(agent.model, agent.revision, home(), tell)
        tokens = load_tokens(name, agent, origin)
        policy = load_policy(
            name,
            agent,
            tokens,
            origin,
            str(CPU if offloads else device),
            config.rollout.temperature,
            model_folder(checkpoint.path, name) if checkpoint else None,
        )
        if config.update.gradient_checkpointing:
            policy.recompute_activations()
        learner = Learner(policy, config.update)
        if checkpoint:
            learner.load_state(read_optimizer(checkpoint, name), checkpoint.step)
        identity = model_identity(agent.model, agent.revision, home())
        seen[identity] = seen.get(identity, -1) + 1
        agents[name] = Agent(
            name=name,
            seed_key=f"{identity}#{seen[identity]}",
            tokens=tokens,
            policy=policy,
            learner=learner,
            engine=build_engine(name, agent, config, tokens, policy, origin, device),
            device=device,
            offloads=offloads,
        )
    return agents


def pick_device(device: str) -> torch.device:
    """The device that a config names; `auto` is a GPU if torch sees one.

    Raises:
        DataError: a GPU that is not there.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise DataError(f"device is {device!r} but torch sees no GPU; use device: auto or cpu")
    return torch.device(device)


def pick_devices(device: str) -> list[torch.device]:
    """As `pick_device`; of `auto`, every GPU that torch sees, for agents in turn."""
    first = pick_device(device)
    if device != "auto" or first.type != "cuda":
        return [first]
    return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]


def check_room(name: str, config: RunConfig, prompt: int, most: int | None) -> None:
    """Refuse responses that would not fit into an agent's model behind its longest prompt.

    Args:
        name: of the agent.
        config: of the run.
        prompt: tokens of the longest one.
        most: tokens that the model takes together; None: no limit.
    Raises:
        DataError: they would not.
    """
    limits = {"rollout.max_response_tokens": config.rollout.max_response_tokens}
    if config.evaluate.samples or config.evaluate.greedy:
        limits["evaluate.max_response_tokens"] = config.evaluate.max_response_tokens or 0
    key = max(limits, key=lambda each: limits[each])
    if most is not None and prompt + limits[key] > most:
        raise DataError(
            f"agent {name!r}: a prompt of {prompt} tokens and a response of {limits[key]} are "
            f"more than its model can take ({most}): lower {key}"
        )


def build_engine(
    name: str,
    agent: AgentConfig,
    config: RunConfig,
    tokens: AgentTokens,
    policy: Policy,
    origin: str,
    device: torch.device,
) -> Engine:
    """What samples for an agent under a run's settings; vLLM without weights yet."""
    if agent.engine == "hf":
        return HFEngine(
            policy.model,
            end_ids=tokens.end_ids,
            pad_id=tokens.pad_id,
            decode=tokens.decode,
            batch_rows=config.rollout.batch_rows,
        )
    longest = max(config.rollout.max_response_tokens, config.evaluate.max_response_tokens or 0)
    cache: dict[str, Any] = {}
    if config.vllm.kv_cache_gb is not None:
        cache["kv_cache_bytes"] = int(config.vllm.kv_cache_gb * 2**30)
    return VLLMEngine(
        agent=name,
        model=origin,
        end_ids=tokens.end_ids,
        decode=tokens.decode,
        dtype=agent.dtype,
        max_model_tokens=min(
            config.rollout.max_prompt_tokens + longest,
            policy.max_tokens or 2**31,
        ),
        device=str(device),
        gpu_memory_fraction=config.vllm.gpu_memory_fraction,
        threads=config.threads,
        compile_on_cpu=config.vllm.compile_on_cpu,
        **cache,
    )
