"""The one place that builds things from a config: a run's agents, problems, verifier and state.

`open_run` is cached, so models, optimizers and engines stay resident between phases and the phases
need only ids. Randomness is counter-based: every draw is seeded by (seed, step, agent, purpose).
"""

import contextlib
import hashlib
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from hacpo.agents import Agent, build_agents, check_room
from hacpo.checkpoints import Written, latest_checkpoint, read_state
from hacpo.config import RunConfig
from hacpo.errors import DataError
from hacpo.ledger import Ledger, read_json, write_json
from hacpo.models.load import load_policy
from hacpo.models.policy import Policy
from hacpo.models.resolve import resolve_model
from hacpo.places import home, run_folder
from hacpo.problems import check_enough, load_problems
from hacpo.tracking import Tracker
from hacpo.types import Evaluation, Problem, StepSummary
from hacpo.verifiers import VerifierPool

logger = logging.getLogger(__name__)

Grades = list[tuple[float, str, str]]
"""Reward, outcome and reason of each response."""


class Recorder(Protocol):
    """Where a run's facts go (the registry); a run without one keeps only its ledger."""

    def step(self, summary: StepSummary) -> None: ...
    def checkpoint(self, written: Written, removed: list[int]) -> None: ...
    def evaluation(self, evaluation: Evaluation) -> None: ...
    def earlier_evaluation(self, agent: str, task: str, protocol: str) -> Evaluation | None: ...
    def is_wanted(self) -> bool:
        """False: the run is to stop at the next step boundary."""
        ...


class NoRecorder:
    """Records nothing."""

    def is_wanted(self) -> bool:
        return True

    def step(self, summary: StepSummary) -> None: ...
    def checkpoint(self, written: Written, removed: list[int]) -> None: ...
    def evaluation(self, evaluation: Evaluation) -> None: ...
    def earlier_evaluation(self, agent: str, task: str, protocol: str) -> Evaluation | None:
        return None


@dataclass(slots=True)
class RunState:
    """What a checkpoint must hold beside weights and optimizers."""

    step: int = 0
    """Completed steps."""
    capability_history: dict[str, list[float]] = field(default_factory=dict)
    """agent -> mean reward of each completed step; NaN where no response was graded."""
    rollouts: dict[str, int] = field(default_factory=dict)
    """agent -> responses sampled so far."""
    best: dict[str, float] = field(default_factory=dict)
    """step -> mean capability, for checkpoints that exist."""


@dataclass(slots=True)
class Run:
    """Everything that a step needs, built once."""

    run_id: str
    config: RunConfig
    ledger: Ledger
    agents: dict[str, Agent]
    train_problems: list[Problem]
    left_out: int
    """Training problems whose prompt is too long for some agent."""
    held_out: list[Problem]
    verifier: VerifierPool
    tracker: Tracker
    recorder: Recorder
    state: RunState
    grader: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "grader"))
    """Grades one agent's responses while the next one samples."""
    gradings: dict[tuple[int, str], Future[Grades]] = field(default_factory=dict)
    """(step, agent) -> grades on their way."""
    step_metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    """agent -> metrics of the step in progress that its files do not hold."""

    @property
    def checkpoints(self) -> Path:
        return self.ledger.folder / "checkpoints"

    def seed(self, *parts: object) -> int:
        return seed_for(self.config.seed, *parts)

    @contextlib.contextmanager
    def timed(self, agent: str, phase: str) -> Iterator[None]:
        """Add the seconds of a phase to the step's metrics."""
        started = time.monotonic()
        yield
        self.step_metrics.setdefault(agent, {})[f"time/{phase}"] = time.monotonic() - started

    def initial_policy(self, name: str) -> Policy:
        """The policy before training, loaded when first asked for."""
        agent = self.agents[name]
        if agent.initial is None:
            config = self.config.agents[name]
            path = resolve_model(config.model, config.revision, home())
            device = str(agent.policy.device)
            temperature = self.config.rollout.temperature
            plain = config.model_copy(update={"lora": None})
            agent.initial = load_policy(
                name, plain, agent.tokens, path, device, temperature, frozen=True
            )
        return agent.initial


_OPEN: dict[str, Run] = {}


def open_run(run_id: str) -> Run:
    """The run of this process, or one opened from its folder (see `start_run`)."""
    if run_id not in _OPEN:
        config = RunConfig.model_validate(read_json(run_folder(run_id) / "config.json"))
        start_run(run_id, config)
    return _OPEN[run_id]


def start_run(
    run_id: str,
    config: RunConfig,
    *,
    tracker: Tracker | None = None,
    recorder: Recorder | None = None,
    progress: Callable[[str], None] | None = None,
) -> Run:
    """Build a run, from its newest complete checkpoint if there is one, and keep it open.

    Args:
        run_id: its folder's name under `home()/runs`.
        config: resolved.
        tracker: MLflow; default: only the spool in the folder.
        recorder: the registry; default: none.
        progress: told what takes time (building an embedded agent, loading).
    Raises:
        DataError: a model, tokenizer or problem set that cannot be used.
        StorageError: the folder is not writable or damaged.
    """
    close_run(run_id)
    torch.set_num_threads(config.threads)
    tell = progress or logger.info
    folder = run_folder(run_id)
    ledger = Ledger(folder)
    write_json(folder / "config.json", config.model_dump(mode="json"))
    checkpoint = latest_checkpoint(folder / "checkpoints")
    state = RunState(**read_state(checkpoint)) if checkpoint else RunState()
    forget_lost(ledger, state.step)
    agents = build_agents(config, checkpoint, tell)
    given = load_problems(config.problems.train)
    train, longest = _fitting(given, agents, config)
    held_out = load_problems(config.problems.held_out)
    _check_lengths(longest, held_out, agents, config)
    run = Run(
        run_id=run_id,
        config=config,
        ledger=ledger,
        agents=agents,
        train_problems=train,
        left_out=len(given) - len(train),
        held_out=held_out,
        verifier=VerifierPool(config.verifier, log=folder / "verifier.log"),
        tracker=tracker or Tracker(folder, None),
        recorder=recorder or NoRecorder(),
        state=state,
    )
    _OPEN[run_id] = run
    return run


def close_run(run_id: str) -> None:
    """Forget a run's resident state; its files stay."""
    run = _OPEN.pop(run_id, None)
    if run is not None:
        run.verifier.close()
        run.grader.shutdown(wait=False, cancel_futures=True)
        for agent in run.agents.values():
            agent.engine.close()


def seed_for(*parts: object) -> int:
    """A 63-bit seed from a counter such as (run seed, step, agent, purpose)."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def forget_lost(ledger: Ledger, step: int) -> None:
    """Drop what weights after the last complete checkpoint made; it will be made again."""
    ledger.forget_after(step)
    for path in (ledger.folder / "evaluations").glob("[0-9]*"):
        if int(path.name.partition(".")[0]) > step:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _fitting(
    problems: list[Problem], agents: dict[str, Agent], config: RunConfig
) -> tuple[list[Problem], dict[str, int]]:
    """The problems whose prompts fit, and agent -> tokens of the longest of these prompts."""
    limit = config.rollout.max_prompt_tokens
    fitting, longest = [], dict.fromkeys(agents, 0)
    for problem in problems:
        lengths = _prompt_lengths(problem, agents, limit)
        if lengths is not None:
            fitting.append(problem)
            longest = {name: max(longest[name], length) for name, length in lengths.items()}
    left_out = len(problems) - len(fitting)
    if left_out:
        logger.warning(
            "%d training problems left out: prompts over %d tokens (rollout.max_prompt_tokens)",
            *(left_out, limit),
        )
    if config.rule != "initial":
        told = f"{config.problems.train} (prompts over rollout.max_prompt_tokens left out)"
        name = told if left_out else config.problems.train
        check_enough(name, len(fitting), config.update.problems_per_step)
    return fitting, longest


def _prompt_lengths(
    problem: Problem, agents: dict[str, Agent], limit: int
) -> dict[str, int] | None:
    """Tokens of a problem's prompt for each agent; None if some agent's is over the limit."""
    lengths = {}
    for name, agent in agents.items():
        lengths[name] = len(agent.tokens.render(problem))
        if lengths[name] > limit:
            return None
    return lengths


def _check_lengths(
    longest: dict[str, int], held_out: list[Problem], agents: dict[str, Agent], config: RunConfig
) -> None:
    """Refuse prompts and responses that are longer than an engine or a model can take.

    Held-out prompts are read here for the first time: what a tokenizer cannot read is refused, too.
    """
    limit = config.rollout.max_prompt_tokens
    for name, agent in agents.items():
        lengths = {problem.id: len(agent.tokens.render(problem)) for problem in held_out}
        worst = max(lengths, key=lambda identifier: lengths[identifier])
        if lengths[worst] > limit:
            raise DataError(
                f"agent {name!r}: the prompt of held-out problem {worst!r} has {lengths[worst]} "
                f"tokens: raise rollout.max_prompt_tokens ({limit}) or leave it out"
            )
        check_room(name, config, max(lengths[worst], longest[name]), agent.policy.max_tokens)
