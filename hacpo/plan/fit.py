"""Whether a run fits, and if not, which numbers must change for it to fit."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from hacpo.agents import pick_device
from hacpo.config import RunConfig
from hacpo.plan.machine import available_bytes, gpu_available_bytes
from hacpo.plan.memory import (
    AgentMemory,
    DoesNotFitError,
    Sizes,
    moved_off,
    needed_offloaded,
    needed_on_one_device,
)
from hacpo.presets import set_dotted

GB = 1 << 30
MARGIN = 1.1
"""What a run was seen to take over what is counted: fragments, and what libraries keep."""
GPU_CONTEXT = GB // 2
"""What CUDA and its libraries take of a GPU before the first tensor."""


@dataclass(frozen=True, slots=True)
class Place:
    """A memory, and what a run needs of it."""

    name: str
    needed: int
    """Bytes, `MARGIN` included."""
    available: int

    @property
    def fits(self) -> bool:
        return self.needed <= self.available


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that makes a run smaller."""

    key: str
    old: object
    new: object

    def __str__(self) -> str:
        if isinstance(self.new, int) and not isinstance(self.new, bool):
            return f"lower {self.key} from {self.old} to {self.new}"
        return f"set {self.key} to {str(self.new).lower()}"


def places(
    config: RunConfig,
    agents: dict[str, AgentMemory],
    process: int,
    available: Mapping[str, int] | None = None,
) -> list[Place]:
    """The memories that a run needs.

    Args:
        config: of the run.
        agents: what they need.
        process: bytes of the process without agents.
        available: bytes of `memory` and `GPU memory`; None: as measured now.
    """
    device = pick_device(config.device)
    free = dict(available) if available is not None else free_bytes(device)
    trains = config.rule != "initial"
    if device.type == "cpu":
        needed = needed_on_one_device(agents, process, trains=trains)
        return [Place("memory", int(MARGIN * needed), free["memory"])]
    offloads = config.offload is True or config.offload == "auto"
    if offloads:
        on_gpu, outside = needed_offloaded(agents, GPU_CONTEXT, trains=trains), moved_off(agents)
    else:
        on_gpu, outside = needed_on_one_device(agents, GPU_CONTEXT, trains=trains), 0
    loading = max(a.loading for a in agents.values())
    return [
        Place("GPU memory", int(MARGIN * on_gpu), free["GPU memory"]),
        Place("memory", int(MARGIN * (process + max(outside, loading))), free["memory"]),
    ]


def free_bytes(device: torch.device) -> dict[str, int]:
    """Memory that a run may take now, by the name of its place."""
    free = {"memory": available_bytes()}
    if device.type == "cuda":
        free["GPU memory"] = gpu_available_bytes(device)
    return free


def check_fits(
    config: RunConfig, sizes: Sizes, process: int, available: Mapping[str, int] | None = None
) -> list[Place]:
    """What a run needs when every response is as long as allowed.

    Raises:
        DoesNotFitError: more than there is, with the change that makes it fit.
    """
    free = dict(available) if available is not None else free_bytes(pick_device(config.device))

    def asked(candidate: RunConfig) -> list[Place]:
        return places(candidate, sizes.agents(candidate), process, free)

    found = asked(config)
    over = next((place for place in found if not place.fits), None)
    if over is None:
        return found
    changes = remedy(config, lambda c: all(place.fits for place in asked(c)))
    message = f"needs {over.needed / GB:.1f} GB of {over.available / GB:.1f} GB of {over.name}: "
    if changes:
        raise DoesNotFitError(message + " and ".join(map(str, changes)))
    leanest = sizes.agents(config)
    one = min(leanest, key=lambda name: leanest[name].resident)
    alone = config.model_copy(update={"agents": {one: config.agents[one]}})
    if (
        len(config.agents) > 1
        and remedy(alone, lambda c: all(p.fits for p in asked(c))) is not None
    ):
        raise DoesNotFitError(f"{message}train fewer agents, or use smaller models")
    raise DoesNotFitError(f"{message}use a smaller model, even lora in bfloat16 is too much")


def remedy(config: RunConfig, fits: Callable[[RunConfig], bool]) -> list[Change] | None:
    """The mildest changes under which a run fits: [] none is needed, None nothing helps.

    Numbers that cost only time come first, then recomputing, moving agents off the GPU, and what
    trains something else: adapters.
    """
    for settings in _ladder(config):
        smaller = _apply(config, settings)
        numbers = _numbers(smaller, fits)
        if numbers is not None:
            return settings + numbers
    return None


def _ladder(config: RunConfig) -> Iterator[list[Change]]:
    steps: list[list[Change]] = []
    if config.rule != "initial" and not config.update.gradient_checkpointing:
        steps.append([Change("update.gradient_checkpointing", False, True)])
    if pick_device(config.device).type != "cpu" and config.offload is False:
        steps.append([Change("offload", False, True)])
    plain = [name for name, agent in config.agents.items() if agent.lora is None]
    if plain and config.rule != "initial":
        steps.append([Change(f"agents.{name}.lora.rank", None, 16) for name in plain])
    wide = [name for name, agent in config.agents.items() if agent.dtype == "float32"]
    if wide:
        steps.append([Change(f"agents.{name}.dtype", "float32", "bfloat16") for name in wide])
    yield []
    for count in range(len(steps)):
        yield steps[count]
        if count:
            yield [change for step in steps[: count + 1] for change in step]


def _numbers(config: RunConfig, fits: Callable[[RunConfig], bool]) -> list[Change] | None:
    """The largest micro-batches and sampling batches that fit; [] if they do as they are."""
    if fits(config):
        return []
    micro, rows = "update.micro_tokens", "rollout.batch_rows"
    most_micro, most_rows = config.update.micro_tokens, config.rollout.batch_rows
    least_micro, least_rows = Change(micro, most_micro, 1), Change(rows, most_rows, 1)
    if not fits(_apply(config, [least_micro, least_rows])):
        return None
    for kept, moved, most in (
        ([], micro, most_micro),
        ([], rows, most_rows),
        ([least_rows], micro, most_micro),
    ):
        found = _largest(config, kept, moved, most, fits)
        if found is not None and kept:
            return [found, *_slack(config, found, rows, most_rows, fits)]
        if found is not None:
            return [found]
    return None


def _slack(
    config: RunConfig, fixed: Change, key: str, most: int, fits: Callable[[RunConfig], bool]
) -> list[Change]:
    found = _largest(config, [fixed], key, most, fits)
    return [found] if found else []


def _largest(
    config: RunConfig,
    kept: list[Change],
    key: str,
    most: int,
    fits: Callable[[RunConfig], bool],
) -> Change | None:
    """The largest power of two below `most` that fits."""
    power = 1 << max(0, (most - 1).bit_length() - 1)
    while power >= 1 and power < most:
        change = Change(key, most, power)
        if fits(_apply(config, [*kept, change])):
            return change
        power //= 2
    return None


def _apply(config: RunConfig, changes: list[Change]) -> RunConfig:
    data = config.model_dump(mode="json")
    for change in changes:
        set_dotted(data, change.key, change.new)
    return RunConfig.model_validate(data)
