"""`hacpo rollouts show`: what the agents wrote, and how it was graded."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from hacpo.cli.errors import examples
from hacpo.cli.output import Json, console, print_json
from hacpo.cli.stored import find_run
from hacpo.errors import ConfigError

if TYPE_CHECKING:
    from hacpo.cli.rollout_rows import RolloutRow, RunRollouts

EXAMPLES = examples(
    'hacpo rollouts show "hacpo a+b s0"               # the newest step of a cell',
    "hacpo rollouts show 3f2a9c --step 0 --source a   # by the start of its key",
    "hacpo rollouts show 3f2a9c --all-steps --outcome timeout --limit 5",
    "hacpo rollouts show 3f2a9c --problem 37+58 --json",
)


class Outcome(StrEnum):
    CORRECT = "correct"
    EXACT = "exact"
    EQUIVALENT = "equivalent"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    TRUNCATED = "truncated"
    TIMEOUT = "timeout"
    ERROR = "error"
    UNVERIFIED = "unverified"


def show(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A cell's label, the start of its key, or a run's folder."
        ),
    ],
    step: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Steps count from 0; default: the newest."),
    ] = None,
    all_steps: Annotated[bool, typer.Option("--all-steps", help="Of every step.")] = False,
    source: Annotated[str | None, typer.Option(metavar="AGENT", help="Only by this agent.")] = None,
    outcome: Annotated[
        Outcome | None, typer.Option(help="Only those graded so; unverified: not graded yet.")
    ] = None,
    problem: Annotated[
        str | None, typer.Option(metavar="ID", help="Only answers to this problem.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Show at most so many.")] = 20,
    json: Json = False,
) -> None:
    """Show responses: prompt, right answer, text, reward, log-probabilities."""
    from hacpo.cli.rollout_rows import RunRollouts

    rollouts = RunRollouts(find_run(run))
    steps = _steps(rollouts, step, all_steps)
    matching = [
        row
        for row in rollouts.rows(steps, source)
        if (outcome is None or row.outcome == outcome)
        and (problem is None or row.problem_id == problem)
    ]
    shown = matching[:limit]
    if json:
        print_json({"steps": steps, "matching": len(matching), "rows": shown})
        return
    out = console()
    for row in shown:
        out.print(_block(row))
    where = f"step {steps[0]}" if len(steps) == 1 else f"{len(steps)} steps"
    out.print(f"showing {len(shown)} of {len(matching)} rows ({where})")


def _steps(rollouts: "RunRollouts", step: int | None, all_steps: bool) -> list[int]:
    steps = rollouts.steps()
    if not steps:
        raise ConfigError("this run has no rollouts yet")
    if all_steps:
        if step is not None:
            raise ConfigError("choose one of --step and --all-steps")
        return steps
    if step is not None and step not in steps:
        raise ConfigError(f"--step {step}: rollouts are there for steps {steps[0]} to {steps[-1]}")
    return [steps[-1] if step is None else step]


def _block(row: "RolloutRow") -> Text:
    reward = "ungraded" if row.reward is None else f"reward {row.reward:g}"
    facts = [
        f"step {row.step}",
        row.source,
        row.problem_id,
        reward,
        row.outcome + (f" ({row.reason})" if row.reason else ""),
        f"{row.finish_reason} after {row.tokens} tokens",
        f"logprob sampler {row.sampler_logprob:.4f} trainer {row.trainer_logprob:.4f}",
    ]
    is_right = row.outcome in ("correct", "exact", "equivalent")
    colour = "green" if is_right else "red" if row.outcome == "wrong" else "yellow"
    block = Text(" | ".join(facts), style=colour)
    missing = "(not in the problem file any more)"
    for name, value in (
        ("prompt", row.prompt or missing),
        ("answer", row.answer or missing),
        ("response", row.response),
    ):
        block.append(f"\n  {name:<9}", style="dim default")
        block.append(printable(value), style="default")
    block.append("\n")
    return block


def printable(text: str) -> str:
    """Text of a model, harmless to a terminal: control characters are shown, not obeyed."""
    indented = text.replace("\n", "\n" + " " * 11)
    return "".join(c if c == "\n" or c.isprintable() else ascii(c)[1:-1] for c in indented)
