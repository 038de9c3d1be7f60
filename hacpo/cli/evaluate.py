"""`hacpo evaluate`: any model or checkpoint on the paper's benchmarks."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from hacpo.cli.errors import INTERRUPTED, examples, say
from hacpo.cli.output import Json, Settings, console, plain_table, print_json
from hacpo.errors import ConfigError

if TYPE_CHECKING:
    from hacpo.evals.benchmark import BenchmarkResult
    from hacpo.subjects import Subject

EXAMPLES = examples(
    "hacpo evaluate pypi:smollm2 --benchmarks gsm8k --limit 20 --max-tokens 512",
    'hacpo evaluate "hacpo a+b s0" --agent a --benchmarks math500,gsm8k,aime25',
    "hacpo evaluate org/name --benchmarks all --engine vllm --dtype bfloat16",
    note="Benchmarks: math500, math, gsm8k, aime25 (30 samples a problem), amc23, minerva, "
    "olympiad; aime24 stands in for aime25. all: the paper's seven. Their files: `hacpo data`. "
    "Interrupted, the same command goes on behind the last finished problems.",
)


def evaluate(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A model as in a config, a folder of a run or checkpoint, or a cell.",
        ),
    ],
    benchmarks: Annotated[str, typer.Option(metavar="NAME,...", help="Benchmarks, or all.")],
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the first N problems of each.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of problem files; else HACPO_DATA.")
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="ID", help="Of a run: only this.")] = None,
    step: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Of a run: after N steps.")
    ] = None,
    engine: Annotated[
        Literal["hf", "vllm"] | None, typer.Option(help="Default: hf, or the run's.")
    ] = None,
    dtype: Annotated[
        Literal["float32", "bfloat16"] | None, typer.Option(help="Default: float32, or the run's.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = None,
    revision: Annotated[str | None, typer.Option(help="Of a hub id.")] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Cut longer responses; default: 8192."),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Template with {problem}; default: the paper's.")
    ] = None,
    batch_rows: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Engine hf: responses at once; 16, or the run's."),
    ] = None,
    set_: Settings = None,
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for answers and results.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget earlier answers.")] = False,
    json: Json = False,
) -> None:
    """Evaluate a model or a run's checkpoint; every answer is kept, with its grade."""
    from hacpo.benchmarks.catalogue import PAPER, benchmark
    from hacpo.places import data_folder
    from hacpo.task_settings import BENCHMARK_PROMPT, BENCHMARK_TOKENS

    names = list(PAPER) if benchmarks == "all" else benchmarks.split(",")
    names = [benchmark(name.strip()).name for name in names]
    if len(set(names)) != len(names):
        raise ConfigError("--benchmarks: a benchmark is listed twice")
    prompt = BENCHMARK_PROMPT if prompt is None else prompt
    if "{problem}" not in prompt:
        raise ConfigError("--prompt: the template must contain {problem}")
    own = {"engine": engine, "dtype": dtype}
    settings = {"device": device, "rollout.batch_rows": batch_rows}
    changes = [f"{key}={value}" for key, value in settings.items() if value is not None]
    subjects = [
        _changed(each, {k: v for k, v in own.items() if v is not None}, [*changes, *(set_ or [])])
        for each in _subjects(target, agent, step, revision)
    ]
    if into is not None and len(subjects) > 1:
        raise ConfigError("--into: choose one agent with --agent, their answers are not mixed")
    from hacpo.benchmarking import Asked, evaluate_subject

    asked = Asked(
        benchmarks=tuple(names),
        data=data_folder(data),
        limit=limit,
        max_tokens=max_tokens or BENCHMARK_TOKENS,
        prompt=prompt,
        into=into,
        fresh=fresh,
    )
    try:
        results = [(each, evaluate_subject(each, asked, say)) for each in subjects]
    except KeyboardInterrupt:
        say("interrupted; the same command goes on behind the last finished problems")
        raise typer.Exit(INTERRUPTED) from None
    if json:
        print_json([_facts(each, found, into) for each, found in results])
    else:
        _show(results)


def _subjects(
    target: str, agent: str | None, step: int | None, revision: str | None
) -> "list[Subject]":
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # our own lines say what goes on
    from hacpo.cli.stored import find_run
    from hacpo.settings import AgentConfig
    from hacpo.subjects import is_run, model_subject, run_of_checkpoint, run_subjects

    path = Path(target).expanduser()
    checkpoint = run_of_checkpoint(path)
    if checkpoint is not None:
        return run_subjects(checkpoint[0], agent, checkpoint[1])
    if is_run(path):
        return run_subjects(path, agent, step)
    if path.is_dir() or target.startswith((".", "/", "~")) or ":" in target or "/" in target:
        if agent is not None or step is not None:
            raise ConfigError(f"--agent and --step are for runs and cells; {target} is a model")
        return [model_subject(AgentConfig(model=target, revision=revision))]
    return run_subjects(find_run(target), agent, step)


def _changed(subject: "Subject", own: dict[str, str], overrides: list[str]) -> "Subject":
    """The subject under the command's options, where they are given."""
    import dataclasses

    from hacpo.presets import load_run

    data = subject.config.model_dump(mode="json")
    data["agents"][subject.agent] |= own
    return dataclasses.replace(subject, config=load_run(data, overrides))


def _facts(
    subject: "Subject", results: "Sequence[BenchmarkResult]", into: Path | None
) -> dict[str, Any]:
    return {
        "agent": subject.agent,
        "label": subject.label,
        "identity": subject.identity,
        "folder": str(into or subject.records),
        "benchmarks": results,
    }


def _show(results: "list[tuple[Subject, list[BenchmarkResult]]]") -> None:
    out = console()
    for subject, found in results:
        columns = ("problems", "%", "standard error")
        table = plain_table("benchmark", "metric", *columns, numbers=columns)
        for result in found:
            for metric, value in result.metrics.items():
                if "@" in metric:
                    error = result.stderr[metric]
                    shown = "-" if error is None else f"{100 * error:.1f}"
                    table.add_row(
                        *(result.benchmark, metric, str(result.problems), f"{100 * value:.1f}"),
                        shown,
                    )
        out.print(Text(subject.label))
        out.print(table)
        for result in found:
            outcomes = ", ".join(f"{n} {outcome}" for outcome, n in result.counts.items() if n)
            cut, length = result.metrics["truncated"], result.metrics["tokens"]
            out.print(
                Text(
                    f"{result.benchmark}: {outcomes}; {100 * cut:.1f}% cut at the limit, "
                    f"{length:.0f} tokens on average"
                )
            )
