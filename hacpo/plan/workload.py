"""How much a run asks of its agents: rows sampled at a time, tokens of a backward pass."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hacpo.algorithm import split_updates
from hacpo.config import RunConfig
from hacpo.models.packing import make_packs
from hacpo.types import View

Group = tuple[int, list[int]]
"""Tokens of a prompt, and of each response to it that a learner reads, from all sources."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """One kind of call of an engine."""

    problems: int
    samples: int
    """Of each problem."""
    max_tokens: int
    """Of a response."""

    def rows(self, batch_rows: int) -> int:
        """Rows that engine hf holds at a time."""
        return min(self.problems, self.per_batch(batch_rows)) * self.samples

    def batches(self, batch_rows: int) -> int:
        """Batches that engine hf makes of it."""
        return math.ceil(self.problems / self.per_batch(batch_rows))

    def per_batch(self, batch_rows: int) -> int:
        """Problems of one batch (hacpo.engines.hf)."""
        return max(1, batch_rows // self.samples)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The largest backward pass of an update."""

    tokens: int
    """Padding included."""
    pack: Group
    """Its longest pack."""
    passes: int
    """Of the update that it is in; of more than one, gradients are there already."""


def training(config: RunConfig) -> Sampling:
    """What one agent samples in one step."""
    return Sampling(
        config.update.problems_per_step,
        config.responses_per_problem,
        config.rollout.max_response_tokens,
    )


def evaluations(config: RunConfig, held_out: int) -> list[Sampling]:
    """What one agent samples in one evaluation of `held_out` problems."""
    longest = config.evaluate.max_response_tokens or config.rollout.max_response_tokens
    samples = [config.evaluate.samples] * (config.evaluate.samples > 0)
    return [Sampling(held_out, n, longest) for n in (*samples, *[1] * config.evaluate.greedy)]


def count_evaluations(config: RunConfig) -> int:
    """Evaluations of one agent over a run, before and after training included."""
    settings = config.evaluate
    if not settings.samples and not settings.greedy:
        return 0
    if config.rule == "initial":
        return 1
    between = (config.steps - 1) // settings.every if settings.every else 0
    return 2 + between


def updates_per_step(config: RunConfig) -> list[range]:
    """Problems of each update of one learner."""
    rows = len(config.agents) * config.responses_per_problem
    problems = config.update.problems_per_step
    return split_updates(problems, rows, config.update.rows_per_update)


def longest_groups(config: RunConfig, prompt: int) -> list[Group]:
    """A step whose every prompt has `prompt` tokens and whose responses are as long as allowed."""
    rows = len(config.agents) * config.responses_per_problem
    group = (prompt, [config.rollout.max_response_tokens] * rows)
    return [group] * config.update.problems_per_step


def largest_micro_batch(config: RunConfig, groups: Sequence[Group], pack_tokens: int) -> MicroBatch:
    """Of a step with these problems, as `hacpo.models.packing.micro_batches` would cut it."""
    budget = config.update.micro_tokens
    largest = MicroBatch(0, (0, []), 1)
    for update in updates_per_step(config):
        packs = sorted(
            (pack for p in update for pack in _packs(groups[p % len(groups)], budget, pack_tokens)),
            key=lambda pack: pack[0],
        )
        sizes: list[tuple[int, Group]] = []
        count = 0
        for length, pack in packs:  # the newest is the longest
            count = 1 if not count or (count + 1) * length > budget else count + 1
            if count == 1:
                sizes.append((length, pack))
            sizes[-1] = (count * length, pack)
        tokens, pack = max(sizes, key=lambda size: size[0], default=(0, (0, [])))
        if tokens > largest.tokens:
            largest = MicroBatch(tokens, pack, len(sizes))
    return largest


def _packs(group: Group, budget: int, pack_tokens: int) -> list[tuple[int, Group]]:
    prompt, responses = group
    prompt_ids = [0] * prompt
    views = [
        View(
            rollout_id=str(index),
            problem_id="",
            source="",
            prompt_ids=prompt_ids,
            response_ids=range(length),  # type: ignore[arg-type]  # only its length is asked
        )
        for index, length in enumerate(responses)
        if length
    ]
    return [
        (pack.length, (prompt, [len(view.response_ids) for view in pack.rows]))
        for pack in make_packs(views, budget, pack_tokens)
    ]
