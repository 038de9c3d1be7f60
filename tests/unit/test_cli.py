"""The `hacpo` command as people and scripts use it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hacpo.cells import expand
from hacpo.cli import main
from hacpo.places import default_registry_url
from hacpo.presets import load_grid
from hacpo.registry import Claim, Registry
from hacpo.types import AgentStep, CellSpec, StepSummary
from tests.cli_runner import ROOT, Cli, Done, environment

GRID = ROOT / "configs" / "embedded" / "grid.yaml"
COMMANDS = [
    "run",
    "config",
    "status",
    "report",
    "grid plan",
    "queue",
    "sweep submit",
    "sweep list",
    "sweep show",
    "sweep pause",
    "sweep resume",
    "sweep cancel",
    "sweep fill",
    "sweep priority",
    "sweep export",
    "sweep import",
    "cell logs",
    "cell clone",
    "rollouts show",
    "agents build",
    "agents list",
    "doctor",
    "plan",
    "models import",
    "models list",
    "evaluate",
    "data fetch",
    "data check",
]


pytestmark = pytest.mark.usefixtures("home")


def submit(name: str = "embedded") -> list[CellSpec]:
    grid = load_grid(GRID)
    cells = expand(grid, Path(os.environ["HACPO_HOME"]))
    with Registry.open(default_registry_url()) as registry:
        config = grid.model_dump(mode="json")
        registry.register_sweep(name, owner="ann", config=config, cells=cells)
    return cells


def claim(registry: Registry, cell: CellSpec) -> Claim:
    claimed = registry.claim("me", host="box", pid=1, cell_key=cell.key)
    assert claimed is not None
    return claimed


def record_one_step(registry: Registry, claimed: Claim, reward: float) -> None:
    agents = {
        name: AgentStep(agent=name, reward_mean=reward, capability=reward, rollouts=64, tokens=9)
        for name in claimed.agents
    }
    summary = StepSummary(run_id="r", step=0, agents=agents, seconds=1.5)
    registry.start_step_total(claimed, 60)
    registry.record_step(claimed, summary)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(cli: Cli, command: str) -> None:
    shown = cli(*command.split(), "--help")
    assert shown.code == 0
    assert f"$ hacpo {command}" in shown.out
    assert "--json" in shown.out


def test_the_version_is_the_packages(cli: Cli) -> None:
    from hacpo import __version__

    assert cli("--version") == Done(0, f"hacpo {__version__}\n", "")


@pytest.mark.parametrize("arguments", [["nonsense"], ["run"], ["status", "--nonsense"]])
def test_wrong_usage_exits_with_2(cli: Cli, arguments: list[str]) -> None:
    assert cli(*arguments).code == 2


def test_an_error_is_one_line_and_a_traceback_only_on_request(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = cli("run", "nowhere.yaml")
    assert done.code == 2
    assert done.err.startswith("hacpo: error: nowhere.yaml: no such file")
    assert (done.err.count("\n"), done.out) == (1, "")
    monkeypatch.setenv("HACPO_DEBUG", "1")
    with pytest.raises(ValueError, match="no such file"):
        main(["run", "nowhere.yaml"])


def test_a_bug_is_not_dressed_up_as_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("hacpo.presets.load_grid", broken)
    with pytest.raises(ZeroDivisionError):
        main(["grid", "plan", str(GRID)])


def test_ctrl_c_ends_any_command_with_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hacpo.presets.load_grid", interrupted)
    assert cli("grid", "plan", str(GRID)).code == 130


def imported(*arguments: str) -> tuple[str, list[str]]:
    """Output and loaded packages of a command in a process of its own."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from hacpo.cli import main\n"
        f"main({list(arguments)})\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    return done.stdout, done.stderr.split()


HEAVY = {"torch", "transformers", "prefect", "mlflow", "lm_eval", "pyarrow", "sklearn"}


def test_status_loads_neither_torch_nor_migrations() -> None:
    submit()
    out, modules = imported("status", "embedded")
    assert "hacpo a+b s1" in out
    assert (HEAVY | {"scipy", "alembic", "numpy"}) & set(modules) == set()


@pytest.mark.parametrize(
    "arguments",
    [["report", "embedded"], ["grid", "plan", str(GRID)], ["agents", "list"], ["run", "--help"]],
    ids=" ".join,
)
def test_commands_that_only_look_load_no_torch(arguments: list[str]) -> None:
    cells = submit()
    with Registry.open(default_registry_url()) as registry:
        registry.finish(claim(registry, cells[0]))
    _, modules = imported(*arguments)
    assert HEAVY & set(modules) == set()


def test_looking_never_creates_a_registry(cli: Cli, home: Path) -> None:
    assert json.loads(cli("status", "--json").out) == {"sweeps": []}
    assert "nothing is queued yet" in cli("status").err
    assert cli("grid", "plan", str(GRID)).code == 0
    for command in (["report", "x"], ["status", "x"], ["rollouts", "show", "x"]):
        done = cli(*command)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "start with `hacpo run CONFIG`" in done.err
    assert not (home / "registry.db").exists()


def test_status_counts_the_cells_of_each_sweep(cli: Cli) -> None:
    cells = submit()
    with Registry.open(default_registry_url()) as registry:
        registry.finish(claim(registry, cells[0]))
        registry.fail(claim(registry, cells[1]), "data", "no such problem", requeue=False)
    (sweep,) = json.loads(cli("status", "--json").out)["sweeps"]
    counts = {state: number for state, number in sweep["counts"].items() if number}
    assert counts == {"queued": 10, "done": 1, "failed": 1}
    assert re.search(r"embedded +queued +12 +1 +- +10 +1 +0 .* ann", cli("status").out)


def test_status_of_a_sweep_shows_step_reward_activity_and_error(cli: Cli) -> None:
    cells = submit()
    joint = next(cell for cell in cells if cell.label == "hacpo a+b s0")
    with Registry.open(default_registry_url()) as registry:
        registry.fail(claim(registry, cells[0]), "data", "no such problem", requeue=False)
        running = claim(registry, joint)
        record_one_step(registry, running, 0.25)
        registry.heartbeat(running, activity="loading")
    shown = cli("status", "embedded")
    assert "embedded: 12 cells: 1 running, 10 queued, 1 failed" in shown.out
    (line,) = [line for line in shown.out.split("\n") if "hacpo a+b s0" in line]
    assert "1/60" in line
    assert "a 0.25  b 0.25" in line
    assert "loading, 1.5 s/step, on box" in line
    assert "data: no such problem" in shown.out
    view = json.loads(cli("status", "embedded", "--json").out)
    (cell,) = [cell for cell in view["cells"] if cell["state"] == "running"]
    assert cell["agents"]["b"]["reward"] == 0.25


def test_watching_ends_when_nothing_is_left_to_do(cli: Cli) -> None:
    cells = submit()
    with Registry.open(default_registry_url()) as registry:
        for cell in cells:
            registry.finish(claim(registry, cell))
    assert "embedded: 12 cells: 12 done" in cli("status", "embedded", "--watch").out


def test_an_unknown_sweep_is_told_with_the_known_ones(cli: Cli) -> None:
    submit()
    for command in ("status", "report"):
        done = cli(command, "tiny")
        assert done.code == 2
        assert "no sweep 'tiny'" in done.err
        assert "embedded" in done.err


def test_a_plan_tells_what_is_new_and_how_many_rollouts_that_is(cli: Cli) -> None:
    plan = json.loads(cli("grid", "plan", str(GRID), "--json").out)
    # gspo 4 x 3840, all others 8 x 7680
    assert (len(plan["cells"]), plan["new"], plan["rollouts_of_new"]) == (12, 12, 76_800)
    cells = submit()
    with Registry.open(default_registry_url()) as registry:
        registry.finish(claim(registry, cells[0]))
    plan = json.loads(cli("grid", "plan", str(GRID), "--set", "grid.seeds=[0, 5]", "--json").out)
    states = {cell["label"]: cell["state"] for cell in plan["cells"]}
    assert states[cells[0].label] == "done"
    assert states["hacpo a+b s0"] == "queued"
    assert {state for label, state in states.items() if label.endswith("s5")} == {"new"}
    assert (plan["new"], plan["rollouts_of_new"]) == (6, 38_400)  # 2 x 3840 + 4 x 7680
    assert (
        "6 new with 38,400 rollouts"
        in cli("grid", "plan", str(GRID), "--set", "grid.seeds=[5]").out
    )


def test_a_report_of_a_sweep_without_a_finished_cell_is_refused(cli: Cli) -> None:
    submit()
    done = cli("report", "embedded")
    assert (done.code, done.out) == (2, "")
    assert "no finished cell (12 queued): see `hacpo status embedded`" in done.err


def test_a_report_prints_one_format_at_a_time(cli: Cli) -> None:
    cells = submit()
    with Registry.open(default_registry_url()) as registry:
        registry.finish(claim(registry, cells[0]))
    assert json.loads(cli("report", "embedded", "--json").out)["protocol"] == "avg@8"
    csv = cli("report", "embedded", "--csv").out.split("\n")
    assert csv[0].startswith("sweep,combination,method,agent,seed,task,protocol")
    assert len(csv) == 1 + 4 * 2 * 2 * 2 + 1  # methods x agents x seeds x protocols
    assert "Missing, and in no mean above (12):" in cli("report", "embedded").out
    assert cli("report", "embedded", "--markdown").out.startswith("### Gain and cost")
    assert cli("report", "embedded", "--latex").out.startswith("% hacpo report embedded")
    assert cli("report", "embedded", "--csv", "--json").code == 2
    assert "it has gspo" in cli("report", "embedded", "--against", "nothing").err


def test_a_report_is_written_as_one_page(cli: Cli, tmp_path: Path) -> None:
    cells = submit()
    with Registry.open(default_registry_url()) as registry:
        registry.finish(claim(registry, cells[0]))
    file = tmp_path / "report.html"
    done = cli("report", "embedded", "--html", str(file))
    assert (done.code, done.out) == (0, "")
    assert str(file) in done.err
    assert file.read_text().startswith("<!DOCTYPE html>")
    assert [path.name for path in tmp_path.glob("*.html*")] == ["report.html"]
    refused = cli("report", "embedded", "--html", str(tmp_path / "nowhere" / "report.html"))
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "choose another file" in refused.err


def test_agents_are_listed_without_being_built(cli: Cli, home: Path) -> None:
    agents = json.loads(cli("agents", "list", "--json").out)["agents"]
    assert [agent["model"] for agent in agents] == ["embedded:a", "embedded:b", "embedded:c"]
    assert {agent["built"] for agent in agents} == {False}
    assert cli("agents", "build", "nobody").code == 2
    assert not home.exists()


def test_a_password_is_never_printed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HACPO_REGISTRY_URL", "postgresql://ann:s3cret@127.0.0.1:1/hacpo")
    for arguments in (["status"], ["report", "x"], ["grid", "plan", str(GRID)]):
        done = cli(*arguments)
        assert done.code == 2
        assert done.err.startswith("hacpo: error:")
        assert "s3cret" not in done.out + done.err


def test_config_explains_every_key(cli: Cli) -> None:
    rows = json.loads(cli("config", "--json").out)
    keys = {row["key"]: row for row in rows}
    assert keys["algorithm.floor"]["default"] == "0.8"
    assert keys["agents.NAME.model"]["default"] == "required"
    assert [row["key"] for row in rows if not row["meaning"]] == []


def test_config_shows_what_a_file_comes_to(cli: Cli) -> None:
    file = str(ROOT / "configs" / "embedded" / "pair.yaml")
    resolved = yaml.safe_load(cli("config", file, "--set", "steps=3").out)
    assert (resolved["steps"], resolved["update"]["betas"]) == (3, [0.9, 0.999])
