"""Evaluating one set of weights on benchmarks: builds what that needs, and lets go of it.

Meant for a process of its own, so that a GPU's memory returns when it ends.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from hacpo.agents import CPU, build_engine, pick_device
from hacpo.benchmarks.catalogue import ProblemSet, benchmark
from hacpo.benchmarks.check import recognize
from hacpo.benchmarks.files import read_set
from hacpo.engines.base import Engine
from hacpo.errors import DataError
from hacpo.evals.benchmark import BenchmarkResult, evaluate_benchmark
from hacpo.evals.records import Records
from hacpo.ledger import write_json
from hacpo.models.load import load_policy
from hacpo.models.policy import Policy
from hacpo.models.resolve import resolve_model
from hacpo.models.tokens import AgentTokens, check_tokenizer, load_tokens, tokenizer_hash
from hacpo.places import code_version, home
from hacpo.problems import problems_digest
from hacpo.run import seed_for
from hacpo.subjects import Subject
from hacpo.task_settings import BENCHMARK_PROMPT, BENCHMARK_TOKENS, VerifierConfig
from hacpo.types import UNGRADED, FinishReason, Problem
from hacpo.verifiers import VerifierPool
from hacpo.verifiers.version import math_verifier_version

UNKNOWN = "unknown data"
VLLM_ROWS = 2048
"""Responses that vLLM is asked for at once; it schedules them itself."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to evaluate on, and how."""

    benchmarks: tuple[str, ...]
    data: Path
    """Folder of problem files."""
    limit: int | None = None
    """Only so many problems of each, the first ones."""
    max_tokens: int = BENCHMARK_TOKENS
    """A longer response is cut."""
    prompt: str = BENCHMARK_PROMPT
    into: Path | None = None
    """Folder for the answers; None: the subject's own."""
    fresh: bool = False
    """Forget earlier answers."""
    workers: int = 1
    """Processes that grade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """One benchmark, ready to be asked."""

    benchmark: ProblemSet
    problems: list[Problem]
    prompts: list[list[int]]
    digest: str
    source: str
    """Where content like this is from, or that it is not known."""


def evaluate_subject(subject: Subject, asked: Asked, progress: Progress) -> list[BenchmarkResult]:
    """Every benchmark asked for, in order; finished problems of an earlier attempt are kept.

    Answers lie in the subject's folder as `NAME.ENGINE.DTYPE.TOKENS.jsonl`, the result beside them
    as `.json`.

    Raises:
        ConfigError: an unknown benchmark, an engine that cannot be had.
        DataError: missing data, a model that cannot be used or whose tokenizer changed, prompts
            and responses longer than it takes, earlier answers made with something else.
        StorageError: the folder cannot be written.
    """
    settings = subject.settings
    benchmarks = [benchmark(name) for name in asked.benchmarks]
    read = [read_set(each, asked.data) for each in benchmarks]  # before anything slow
    origin = resolve_model(settings.model, settings.revision, home(), progress)
    tokens = load_tokens(subject.agent, settings, origin)
    if subject.checkpoint is not None:
        check_tokenizer(subject.agent, tokens, subject.checkpoint)
    tokens = dataclasses.replace(tokens, prompt=asked.prompt)
    loaded = [
        _load(each, problems, tokens, asked.limit)
        for each, problems in zip(benchmarks, read, strict=True)
    ]
    for each in loaded:
        if each.source.startswith(UNKNOWN):
            progress(f"{each.benchmark.name}: {each.source}; its numbers are no benchmark's")
    folder = asked.into or subject.records
    verifier = VerifierConfig(type="math", workers=asked.workers)
    with (
        VerifierPool(verifier) as pool,
        _sampling(subject, asked, tokens, origin, loaded) as engine,
    ):
        return [
            _evaluate(subject, asked, tokens, each, engine, pool, folder, progress)
            for each in loaded
        ]


def _load(
    each: ProblemSet, problems: list[Problem], tokens: AgentTokens, limit: int | None
) -> _Loaded:
    some = problems[:limit]
    digest = problems_digest(problems)
    verdict, says = recognize(each, len(problems), digest)
    return _Loaded(
        benchmark=each,
        problems=some,
        prompts=[tokens.render(problem) for problem in some],
        digest=digest,
        source=f"{UNKNOWN}: {says}" if verdict == "unknown" else says,
    )


@contextmanager
def _sampling(
    subject: Subject, asked: Asked, tokens: AgentTokens, origin: str, loaded: Sequence[_Loaded]
) -> Iterator[Engine]:
    """The subject's engine with its weights; afterwards nothing of it is left in memory."""
    config, settings = subject.config, subject.settings
    torch.set_num_threads(config.threads)
    device = pick_device(config.device)
    checkpoint = subject.checkpoint
    policy: Policy | None = load_policy(
        *(subject.agent, settings, tokens, origin, str(device), 1.0, checkpoint), frozen=True
    )
    assert policy is not None
    longest = _check_lengths(asked, loaded, policy)
    rollout = {"max_prompt_tokens": longest, "max_response_tokens": asked.max_tokens}
    config = config.model_copy(update={"rollout": config.rollout.model_copy(update=rollout)})
    engine = build_engine(subject.agent, settings, config, tokens, policy, origin, device)
    try:
        engine.load_weights(policy.engine_weights())
        if settings.engine == "vllm":  # which has its own copy
            policy.model.to(CPU)
        yield engine
    finally:
        engine.close()
        del engine, policy
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _check_lengths(asked: Asked, loaded: Sequence[_Loaded], policy: Policy) -> int:
    """Tokens of the longest prompt.

    Raises:
        DataError: with the response it is more than the model takes.
    """
    longest, worst = max(
        (len(prompt), problem.id)
        for each in loaded
        for prompt, problem in zip(each.prompts, each.problems, strict=True)
    )
    most = policy.max_tokens
    if most is not None and longest + asked.max_tokens > most:
        raise DataError(
            f"problem {worst!r}: a prompt of {longest} tokens and a response of {asked.max_tokens} "
            f"are more than the model takes ({most}): --max-tokens {max(1, most - longest)} is "
            "the most that fits"
        )
    return longest


def _evaluate(
    subject: Subject,
    asked: Asked,
    tokens: AgentTokens,
    each: _Loaded,
    engine: Engine,
    pool: VerifierPool,
    folder: Path,
    progress: Progress,
) -> BenchmarkResult:
    settings, name = subject.settings, each.benchmark.name
    made_with = _made_with(subject, asked, tokens, each)
    stem = f"{name}.{settings.engine}.{settings.dtype}.{asked.max_tokens}"

    def grade(rows: list[tuple[Problem, str, FinishReason]]) -> list[tuple[float, str]]:
        graded = pool.grade([(problem, text) for problem, text, _ in rows])
        return [(UNGRADED if g.reward is None else g.reward, g.outcome) for g in graded]

    with Records(folder / f"{stem}.jsonl", made_with, fresh=asked.fresh) as records:
        kept = sum(problem.id in records for problem in each.problems)
        if kept:
            progress(f"{name}: {kept} of {len(each.problems)} problems are there already")
        result = evaluate_benchmark(
            each.benchmark,
            each.problems,
            prompts=each.prompts,
            generate=engine.generate,
            grade=grade,
            seed=lambda index: seed_for("benchmark", name, index),
            records=records,
            made_with=made_with | {"source": each.source} | _noted(settings.engine),
            max_tokens=asked.max_tokens,
            chunk_rows=VLLM_ROWS
            if settings.engine == "vllm"
            else subject.config.rollout.batch_rows,
            progress=lambda done, total: progress(f"{name}: {done} of {total} problems"),
        )
    write_json(folder / f"{stem}.json", _json(result))
    return result


def _made_with(
    subject: Subject, asked: Asked, tokens: AgentTokens, each: _Loaded
) -> dict[str, str]:
    """What decides an answer or its grade: answers made with something else are not mixed in."""
    asks = [asked.prompt, tokens.tokenizer.chat_template, tokens.end_ids]
    if tokens.template_kwargs:  # else the same as before there were any
        asks.append(tokens.template_kwargs)
    prompt = json.dumps(asks)
    return {
        "tokenizer": tokenizer_hash(tokens.tokenizer),  # first: it is part of most identities
        "model": subject.identity,
        "data": each.digest,
        "prompt": hashlib.sha256(prompt.encode()).hexdigest(),
        **math_verifier_version(),
        "engine": subject.settings.engine,
        "dtype": subject.settings.dtype,
        "max_tokens": str(asked.max_tokens),
        "samples": str(each.benchmark.samples),
    }


def _noted(engine: str) -> dict[str, str]:
    """What is worth knowing about a result beside that."""
    packages = ["lm_eval", "torch", "transformers", *(["vllm"] if engine == "vllm" else [])]
    found = {}
    for package in packages:
        for name in (package, f"{package}-cpu"):
            try:
                found[package] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
    return {**found, "hacpo": code_version()}


def _json(result: BenchmarkResult) -> dict[str, object]:
    """NaN, which JSON lacks, cannot be in it: ungraded samples count as wrong."""
    data = dataclasses.asdict(result)
    assert all(math.isfinite(value) for value in result.metrics.values())
    return data
