"""The sections of a config file about problems, grading and evaluation; see `hacpo.settings`."""

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from hacpo.settings import Config, with_problem

NAMED_PROBLEMS = ("embedded:", "sums:", "reasoning_gym:", "data:")
"""How problems begin that are no path."""


class ProblemsConfig(Config):
    train: str
    """`embedded:train`, `sums:train` (one-digit sums for pretrained models), a task of
    reasoning-gym such as `reasoning_gym:chain_sum:train?size=500&max_terms=2`, or a JSONL file with
    id, problem, answer: a path (relative to this file), or `data:FILE` of HACPO_DATA."""
    held_out: str
    """`embedded:held_out`, `sums:held_out`, `reasoning_gym:NAME:held_out?...`, or a JSONL file;
    must share no problem with `train`."""


class VerifierConfig(Config):
    type: Literal["math", "marker", "boxed", "last_number", "reasoning_gym", "custom"] = "boxed"
    """The last balanced \\boxed{} by value (math) or as text (boxed), the text after the last
    marker, the last number by its value, reasoning-gym's own score, or a function of yours."""
    strict: bool = False
    """math: the boxed match of verl in place of algebra, to compare with the paper."""
    marker: str = "#"
    """Stands before the answer."""
    reward: str | None = None
    """custom: `module:function`; called as function(problem, response) in a worker. An edit of that
    module is new work; an edit of what it imports is not noticed."""
    folder: str | None = None
    """custom: where that module is looked for first; null: beside this file."""
    workers: int = Field(default=1, ge=1, le=64)
    """Processes that grade."""
    timeout: float = Field(default=10.0, gt=0)
    """Seconds for one answer; then its worker is killed and the row is ungraded."""

    @model_validator(mode="after")
    def _options_fit_the_type(self) -> "VerifierConfig":
        if self.strict and self.type != "math":
            raise ValueError(f"only type math takes strict: true, not {self.type}")
        if (self.type == "custom") != (self.reward is not None):
            raise ValueError("type custom needs reward: module:function, and only custom takes it")
        if self.reward is not None and not re.fullmatch(r"[\w.]+:\w+", self.reward):
            raise ValueError(f"reward {self.reward!r} is not module:function")
        return self


BENCHMARK_PROMPT = (
    "{problem} Let's think step by step and output the final answer within \\boxed{}."
)
"""The paper's and verl's."""
BENCHMARK_TOKENS = 8192
"""Response limit of the paper's main tables; 4096 in its others."""
BenchmarkName = Literal[
    "math500", "math", "gsm8k", "aime25", "aime24", "amc23", "minerva", "olympiad"
]


class EvaluateConfig(Config):
    samples: int = Field(default=8, ge=0)
    """avg@k at temperature 1 over the held-out problems; 0 is none."""
    greedy: bool = True
    """Also one greedy answer to each problem."""
    every: int = Field(default=0, ge=0)
    """Also after every that many steps; 0 is before and after training only."""
    max_response_tokens: int | None = Field(default=None, ge=1)
    """null: as in training."""
    benchmarks: tuple[BenchmarkName, ...] = ()
    """Also before and after training, each in a process of its own: math500, math, gsm8k, aime25,
    aime24, amc23, minerva, olympiad; graded by verifier math. Their files: `hacpo data check`."""
    benchmark_tokens: int = Field(default=BENCHMARK_TOKENS, ge=1)
    """A longer response to a benchmark's problem is cut (the paper: 8192, or 4096)."""
    benchmark_prompt: str = BENCHMARK_PROMPT
    """In place of the agent's own `prompt`; the default is the paper's."""
    benchmark_limit: int | None = Field(default=None, ge=1)
    """Only so many problems of each, the first ones; null: all."""

    @field_validator("benchmarks")
    @classmethod
    def _listed_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) != len(names):
            raise ValueError("a benchmark is listed twice")
        return names

    @field_validator("benchmark_prompt")
    @classmethod
    def _prompt_has_problem(cls, prompt: str) -> str:
        return with_problem(prompt)
