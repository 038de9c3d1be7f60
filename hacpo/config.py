"""What a person writes in YAML, as frozen pydantic models that refuse what they do not know.

`RunConfig` is one training (one method, one seed, all its agents learn together or one alone);
`GridConfig` is a table of them. `hacpo.presets` reads files, `hacpo.cells` expands grids.
This module loads no torch.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from hacpo.errors import ConfigError
from hacpo.settings import (
    AgentConfig,
    AlgorithmConfig,
    CheckpointsConfig,
    Config,
    RolloutConfig,
    TrackingConfig,
    UpdateConfig,
    VLLMConfig,
)
from hacpo.task_settings import EvaluateConfig, ProblemsConfig, VerifierConfig

JOINT_METHODS = ("naive", "hacpo")
SINGLE_METHODS = ("initial", "grpo", "gspo")
METHOD_HELP = "initial, grpo, gspo, gspo_x2 (gspo_x3, ...), naive, hacpo"
RUNS = "runs"
"""The sweep that lists trainings of `hacpo run`; no grid has its name, and no worker takes them."""
_MULTIPLIED = re.compile(r"gspo_x([1-9][0-9]?)")
_MAX_SEED = 2**63 - 1  # what a registry's integer holds
_SLUG = r"^[a-z0-9][a-z0-9_.-]*$"


class BaseConfig(Config):
    """What a run and a grid have in common."""

    name: str = Field(default="experiment", pattern=_SLUG)
    """Sweep in the registry, experiment in MLflow."""
    agents: dict[Annotated[str, Field(pattern=_SLUG)], AgentConfig] = Field(min_length=1)
    problems: ProblemsConfig
    algorithm: AlgorithmConfig = AlgorithmConfig()
    rollout: RolloutConfig = RolloutConfig()
    update: UpdateConfig = UpdateConfig()
    verifier: VerifierConfig = VerifierConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    tracking: TrackingConfig = TrackingConfig()
    vllm: VLLMConfig = VLLMConfig()
    steps: int = Field(default=58, ge=1)
    """Rollout-verify-update rounds."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$")
    """auto, cpu, cuda, cuda:1, ..."""
    offload: Literal["auto"] | bool = "auto"
    """Whether an agent leaves the device to others while it does nothing: weights and optimizer go
    to the machine's memory, vLLM engines sleep (on a CPU: end). auto: on a GPU."""
    gpus: int = Field(default=1, ge=0, le=64)
    """Devices that the run holds while it runs in a pool, where slots are leased; agents are spread
    over them in turn if device is auto. On a machine without GPU, slots."""
    threads: int = Field(default=1, ge=1)
    """torch threads of one run; more processes than cores times threads is slow."""

    @model_validator(mode="after")
    def _problems_fit_verifier(self) -> "BaseConfig":
        given = (self.problems.train, self.problems.held_out)
        named = all(spec.startswith("reasoning_gym:") for spec in given)
        if self.verifier.type == "reasoning_gym" and not named:
            raise ValueError(
                "verifier.type reasoning_gym scores only problems of reasoning_gym: set "
                "problems.train and problems.held_out to reasoning_gym:NAME:train and :held_out"
            )
        return self


class RunConfig(BaseConfig):
    """One training: one method, one seed."""

    method: str = "hacpo"
    """initial, grpo, gspo, gspo_x2 (gspo_x3, ...), naive, hacpo."""
    seed: int = Field(default=0, ge=0, le=_MAX_SEED)
    """Of problems' order and of sampling."""

    @field_validator("method")
    @classmethod
    def _known_method(cls, method: str) -> str:
        parse_method(method)
        return method

    @model_validator(mode="after")
    def _agents_fit_method(self) -> "RunConfig":
        rule, _ = parse_method(self.method)
        if rule in SINGLE_METHODS and len(self.agents) != 1:
            raise ValueError(
                f"method {self.method} trains one agent alone but the config has "
                f"{len(self.agents)} ({', '.join(self.agents)}): choose one with --agent, "
                "or queue them all with a grid"
            )
        return self

    @property
    def rule(self) -> str:
        """initial, grpo, gspo, naive or hacpo: the update rule behind the method's name."""
        return parse_method(self.method)[0]

    @property
    def responses_per_problem(self) -> int:
        """Responses that each agent samples for each problem."""
        return self.rollout.responses_per_problem * parse_method(self.method)[1]


class Variant(Config):
    """A named column of a grid: a method under changed settings, such as an ablation."""

    method: str = "hacpo"
    """Whose settings are changed."""
    set: dict[str, object] = Field(min_length=1)
    """Dotted overrides, e.g. `algorithm.alpha: 0`."""


class GridSection(Config):
    combinations: list[list[str]] = Field(min_length=1)
    """Sets of agent ids that learn together."""
    methods: list[str]
    """gspo_xN is gspo_x2 for a pair, gspo_x3 for three agents."""
    seeds: list[int] = Field(min_length=1)
    """One training each."""
    settings: dict[str, Annotated[dict[str, object], Field(min_length=1)]] = Field(default={})
    """Of one combination, named as in `a+b`: dotted overrides such as `algorithm.alpha: 3`."""

    variants: dict[Annotated[str, Field(pattern=_SLUG)], Variant] = Field(default={})

    @model_validator(mode="after")
    def _something_to_train(self) -> "GridSection":
        if not self.methods and not self.variants:
            raise ValueError("list at least one method or variant")
        return self

    @field_validator("methods")
    @classmethod
    def _known_methods(cls, methods: list[str]) -> list[str]:
        for method in methods:
            if method != "gspo_xN":
                parse_method(method)
        if len(set(methods)) != len(methods):
            raise ValueError("a method is listed twice")
        return methods

    @field_validator("variants")
    @classmethod
    def _names_of_their_own(cls, variants: dict[str, Variant]) -> dict[str, Variant]:
        for name in variants:
            if name in (*JOINT_METHODS, *SINGLE_METHODS) or _MULTIPLIED.fullmatch(name):
                raise ValueError(f"variant {name!r} has the name of a method: give it its own")
        return variants

    @field_validator("seeds")
    @classmethod
    def _distinct_seeds(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) != len(seeds) or min(seeds) < 0 or max(seeds) > _MAX_SEED:
            raise ValueError("seeds must be distinct, not negative and below 2**63")
        return seeds


class GridConfig(BaseConfig):
    """A table of trainings; see `hacpo.cells.expand`."""

    grid: GridSection

    @model_validator(mode="after")
    def _combinations_name_agents(self) -> "GridConfig":
        for combination in self.grid.combinations:
            if not combination:
                raise ValueError("grid.combinations: a combination has no agents")
            if len(set(combination)) != len(combination):
                raise ValueError(f"grid.combinations: duplicate agent id in {combination}")
            for agent in combination:
                if agent not in self.agents:
                    known = ", ".join(self.agents)
                    raise ValueError(f"grid.combinations: unknown agent {agent!r}; known: {known}")
        for name in self.grid.settings:
            for agent in name.split("+"):
                if agent not in self.agents:
                    known = ", ".join(self.agents)
                    raise ValueError(
                        f"grid.settings.{name}: unknown agent {agent!r}; known: {known}"
                    )
        return self


def settings_of(section: Mapping[str, Any], combination: Sequence[str]) -> dict[str, Any]:
    """The overrides of a combination, in whatever order its agents are named.

    Args:
        section: GridSection as JSON data; an older sweep's has no settings.
        combination: its agents.
    """
    settings = section.get("settings") or {}
    own = (v for name, v in settings.items() if set(name.split("+")) == set(combination))
    return next(own, {})


def parse_method(method: str) -> tuple[str, int]:
    """The update rule and the multiple of responses behind a method's name.

    >>> parse_method("gspo_x2")
    ('gspo', 2)

    Raises:
        ConfigError: unknown method, with the known ones.
    """
    if method in JOINT_METHODS or method in SINGLE_METHODS:
        return method, 1
    match = _MULTIPLIED.fullmatch(method)
    if match:
        return "gspo", int(match.group(1))
    raise ConfigError(f"unknown method {method!r}: choose from {METHOD_HELP}")
