"""The data that flows between the phases of one step, in the order in which it is made."""

from dataclasses import dataclass, field
from typing import Any, Literal

FinishReason = Literal["stop", "length"]

OUTCOMES = (
    *("correct", "exact", "equivalent", "wrong", "no_answer"),
    *("truncated", "timeout", "error"),
)
"""What a verifier says of a response; exact and equivalent are how type math says correct."""

UNGRADED = float("nan")
"""The reward of a response that could not be graded; never the same as a wrong one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One verifiable question."""

    id: str
    problem: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One sampled response in its source's own tokens, not yet verified."""

    id: str
    """`step/source/problem/index`; rows are matched by it, never by position."""
    problem_id: str
    source: str
    """The agent that sampled it."""
    token_ids: list[int]
    """Response tokens, the end token included if the source ended by itself."""
    text: str
    """The response decoded without its end token; other special tokens are kept visible."""
    finish_reason: FinishReason
    sampler_logprobs: list[float]
    """Per token, by the engine at the sampling temperature."""
    source_logprobs: list[float]
    """Per token, recomputed by the source's trainer weights at the sampling temperature."""
    entropy: float
    """Mean over the response of the next-token distribution's entropy, nats, trainer weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """A verified rollout: what other agents may learn from."""

    rollout: Rollout
    reward: float
    """Usually 0 or 1; NaN if ungraded."""
    outcome: str
    """What the verifier said: one of OUTCOMES."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A trajectory as one learner reads it: self rows as sampled, cross rows re-encoded."""

    rollout_id: str
    problem_id: str
    source: str
    prompt_ids: list[int]
    response_ids: list[int]
    """Empty if the row has no loss term for this learner (see `excluded`)."""
    excluded: str = ""
    """Why it cannot be learned from, e.g. special_token or overflow; "" if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSpec:
    """One training that a grid asks for: method x combination x seed x settings."""

    key: str
    """sha256 over exactly what the method reads; equal keys are the same work."""
    label: str
    """For people, e.g. `hacpo a+b s0`."""
    method: str
    """Column of the table: a method or the name of a variant, e.g. `hacpo` or `hacpo_alpha_0`."""
    seed: int
    combination: str
    """The agents' model labels, sorted, joined by `+`."""
    agents: dict[str, dict[str, str]]
    """agent id -> {model, identity}."""
    config: dict[str, Any]
    """The resolved RunConfig as JSON data."""
    rollouts: int
    """Responses that its training will sample, over all agents."""
    gpus: int = 1
    """Devices that it holds while it runs (slots, on a machine without GPU)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStep:
    """What one agent did in one step, as counts, sums and metrics by name."""

    agent: str
    reward_mean: float
    capability: float
    rollouts: int
    tokens: int
    metrics: dict[str, float] = field(default_factory=dict)
    """Names as in docs/metrics.md, e.g. `ratio/self_mean`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """One finished step of a run."""

    run_id: str
    step: int
    agents: dict[str, AgentStep]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemScore:
    """How one agent did on one held-out problem."""

    problem_id: str
    scores: list[float]
    """One a sample, in order; NaN if ungraded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One agent's held-out evaluation after `step` completed steps (0 = before training)."""

    agent: str
    step: int
    task: str
    """e.g. `held_out`."""
    protocol: str
    """`greedy` or `avg@8`."""
    mean: float
    problems: list[ProblemScore]
    counts: dict[str, int]
    """Of each outcome over all samples."""
