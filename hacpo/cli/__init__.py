"""The `hacpo` command; what is heavy is imported by the command that needs it."""

from typing import Annotated

import typer

from hacpo.cli import (
    agents,
    cell,
    config,
    data,
    doctor,
    evaluate,
    grid,
    models,
    plan,
    queue,
    report,
    rollouts,
    run,
    status,
    sweep,
    verify,
)
from hacpo.cli.errors import Group, examples

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help=(
        "Train different language models together by reinforcement learning (HACPO), "
        "and see what came out."
    ),
    epilog=examples(
        "hacpo run configs/embedded/pair.yaml         # train two small agents",
        "hacpo grid plan configs/embedded/grid.yaml   # what a grid would do",
        "hacpo status                                 # what is queued, running, done",
        "hacpo report embedded                        # the table of a sweep",
        note="Files lie in HACPO_HOME (default .hacpo), the registry at HACPO_REGISTRY_URL "
        "(default: a SQLite file in HACPO_HOME). Exit codes: 0 done, 2 something for you to mend "
        "(one line says what; HACPO_DEBUG=1 shows where), 130 interrupted, 1 a bug.",
    ),
)
grid_app = typer.Typer(no_args_is_help=True, help="Tables of trainings: methods x agents x seeds.")
rollouts_app = typer.Typer(no_args_is_help=True, help="What the agents wrote in training.")
agents_app = typer.Typer(no_args_is_help=True, help="The embedded agents: small, built locally.")
models_app = typer.Typer(no_args_is_help=True, help="Pretrained models from files and packages.")
sweep_app = typer.Typer(no_args_is_help=True, help="Queued grids: submit, pause, cancel, fill.")
cell_app = typer.Typer(no_args_is_help=True, help="One training of a sweep.")
data_app = typer.Typer(no_args_is_help=True, help="Problem files of the paper's benchmarks.")
app.add_typer(grid_app, name="grid")
app.add_typer(sweep_app, name="sweep")
app.add_typer(cell_app, name="cell")
app.add_typer(rollouts_app, name="rollouts")
app.add_typer(agents_app, name="agents")
app.add_typer(models_app, name="models")
app.add_typer(data_app, name="data")

app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("evaluate", epilog=evaluate.EXAMPLES)(evaluate.evaluate)
app.command("plan", epilog=plan.EXAMPLES)(plan.plan)
app.command("config", epilog=config.EXAMPLES)(config.config)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("status", epilog=status.EXAMPLES)(status.status)
app.command("report", epilog=report.EXAMPLES)(report.report)
app.command("verify", epilog=verify.EXAMPLES)(verify.verify)
grid_app.command("plan", epilog=grid.EXAMPLES)(grid.plan)
app.command("queue", epilog=queue.EXAMPLES)(queue.queue)
for name, command in sweep.COMMANDS.items():
    sweep_app.command(name, epilog=sweep.EXAMPLES[name])(command)
cell_app.command("logs", epilog=cell.LOGS_EXAMPLES)(cell.logs)
cell_app.command("clone", epilog=cell.CLONE_EXAMPLES)(cell.clone)
rollouts_app.command("show", epilog=rollouts.EXAMPLES)(rollouts.show)
data_app.command("fetch", epilog=data.FETCH_EXAMPLES)(data.fetch)
data_app.command("check", epilog=data.CHECK_EXAMPLES)(data.check)
agents_app.command("build", epilog=agents.BUILD_EXAMPLES)(agents.build)
agents_app.command("list", epilog=agents.LIST_EXAMPLES)(agents.list_agents)
models_app.command("import", epilog=models.IMPORT_EXAMPLES)(models.import_)
models_app.command("list", epilog=models.LIST_EXAMPLES)(models.list_models)


def _version(asked: bool) -> None:
    if asked:
        from hacpo import __version__

        typer.echo(f"hacpo {__version__}")
        raise typer.Exit


@app.callback()
def _global(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of `hacpo` itself."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `hacpo` script; `arguments` None takes those of the process."""
    app(arguments)
