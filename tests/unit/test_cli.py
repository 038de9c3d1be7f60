"""The `hacpo` command as people and scripts use it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from hacpo.cells import expand
from hacpo.cli import main
from hacpo.cli.rollouts import printable
from hacpo.ledger import Ledger, write_json
from hacpo.places import default_registry_url
from hacpo.presets import load_grid
from hacpo.registry import Claim, Registry
from hacpo.types import AgentStep, CellSpec, Rollout, StepSummary
from tests.tiny import tiny_pair

ROOT = Path(__file__).parents[2]
GRID = ROOT / "configs" / "embedded" / "grid.yaml"
COMMAND = [sys.executable, "-c", "from hacpo.cli import main; main()"]
COMMANDS = ["run", "status", "report", "grid plan", "rollouts show", "agents build", "agents list"]


class Done(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Done]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HACPO_REGISTRY_URL", "HACPO_DEBUG", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HACPO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path / "home"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def call(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
        out, err = capsys.readouterr()
        return Done(int(end.value.code or 0), out, err)

    return call


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


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


def measured(*arguments: str) -> tuple[str, float, list[str]]:
    """Output, CPU seconds and loaded packages of a command in a process of its own."""
    code = (
        "import atexit, resource, sys\n"
        "def tell():\n"
        "    used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "    print(used.ru_utime + used.ru_stime, *sys.modules, file=sys.stderr)\n"
        "atexit.register(tell)\n"
        "from hacpo.cli import main\n"
        f"main({list(arguments)})\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    seconds, *modules = done.stderr.split()
    return done.stdout, float(seconds), modules


HEAVY = {"torch", "transformers", "prefect", "mlflow", "lm_eval", "pyarrow", "sklearn"}


def test_status_takes_under_a_second_and_loads_neither_torch_nor_migrations() -> None:
    submit()
    out, seconds, modules = measured("status", "embedded")
    assert "hacpo a+b s1" in out
    assert (HEAVY | {"scipy", "alembic", "numpy"}) & set(modules) == set()
    assert seconds < 1.0  # of CPU: what it takes on a machine that is not busy


@pytest.mark.parametrize(
    "arguments",
    [["report", "embedded"], ["grid", "plan", str(GRID)], ["agents", "list"], ["run", "--help"]],
    ids=" ".join,
)
def test_commands_that_only_look_load_no_torch(arguments: list[str]) -> None:
    submit()
    _, _, modules = measured(*arguments)
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
    assert sweep["counts"] == {"queued": 10, "running": 0, "done": 1, "failed": 1}
    assert re.search(r"embedded +12 +1 +- +10 +1 .* ann", cli("status").out)


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


def test_a_report_prints_one_format_at_a_time(cli: Cli) -> None:
    submit()
    assert json.loads(cli("report", "embedded", "--json").out)["protocol"] == "avg@8"
    csv = cli("report", "embedded", "--csv").out.split("\n")
    assert csv[0].startswith("sweep,combination,method,agent,seed,protocol")
    assert len(csv) == 1 + 4 * 2 * 2 * 2 + 1  # methods x agents x seeds x protocols
    assert "Missing, and in no mean above (12):" in cli("report", "embedded").out
    assert cli("report", "embedded", "--csv", "--json").code == 2


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


def rollout(step: int, source: str, problem: str, index: int, text: str) -> Rollout:
    return Rollout(
        id=f"{step}/{source}/{problem}/{index}",
        problem_id=problem,
        source=source,
        token_ids=[1, 2],
        text=text,
        finish_reason="stop",
        sampler_logprobs=[-0.25, -0.5],
        source_logprobs=[-0.25, -0.75],
        entropy=0.5,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with 2 steps of 2 agents, 2 problems, 2 responses; the last phase was not verified."""
    problems = tmp_path / "train.jsonl"
    rows = [{"id": f"p{i}", "problem": f"{i}+1=", "answer": str(i + 1)} for i in range(2)]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = tmp_path / "run"
    agents = {name: {"model": "m", "prompt": "Q: {problem}"} for name in "ab"}
    write_json(folder / "config.json", {"agents": agents, "problems": {"train": str(problems)}})
    ledger = Ledger(folder)
    for step in range(2):
        for agent in "ab":
            rollouts = [
                rollout(step, agent, p, i, f"#{i + 1}") for p in ("p0", "p1") for i in range(2)
            ]
            ledger.write_rollouts(step, agent, rollouts)
            if (step, agent) != (1, "b"):
                right = [r.text[1:] == str(int(r.problem_id[1:]) + 1) for r in rollouts]
                grades = {
                    r.id: (float(ok), "correct" if ok else "wrong", "")
                    for r, ok in zip(rollouts, right, strict=True)
                }
                ledger.write_grades(step, agent, grades)
    return folder


def shown(cli: Cli, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    done = cli("rollouts", "show", str(folder), *arguments, "--json")
    rows: list[dict[str, Any]] = json.loads(done.out)["rows"]
    return rows


def test_a_rollout_is_shown_with_its_problem_and_grade(cli: Cli, folder: Path) -> None:
    row = shown(cli, folder, "--step", "0", "--source", "a")[0]
    assert (row["prompt"], row["answer"], row["response"]) == ("Q: 0+1=", "1", "#1")
    assert (row["reward"], row["outcome"], row["tokens"]) == (1.0, "correct", 2)
    assert (row["sampler_logprob"], row["trainer_logprob"]) == (-0.375, -0.5)  # means of two
    text = cli("rollouts", "show", str(folder), "--step", "0", "--limit", "1").out
    for part in ("Q: 0+1=", "reward 1", "stop after 2 tokens", "sampler -0.3750 trainer -0.5000"):
        assert part in text
    assert "showing 1 of 8 rows (step 0)" in text


def test_rollouts_are_filtered_by_step_source_outcome_and_problem(cli: Cli, folder: Path) -> None:
    assert {row["step"] for row in shown(cli, folder)} == {1}  # the newest
    assert len(shown(cli, folder, "--all-steps")) == 16
    assert {row["source"] for row in shown(cli, folder, "--source", "b")} == {"b"}
    wrong = shown(cli, folder, "--all-steps", "--outcome", "wrong")
    # of each verified agent and step: response 1 to p0 and response 0 to p1
    assert [row["id"][4:] for row in wrong] == ["p0/1", "p1/0"] * 3
    assert {row["problem_id"] for row in shown(cli, folder, "--problem", "p1")} == {"p1"}
    unverified = shown(cli, folder, "--all-steps", "--outcome", "unverified")
    assert {(row["step"], row["source"], row["reward"]) for row in unverified} == {(1, "b", None)}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--step", "7"], "rollouts are there for steps 0 to 1"),
        (["--source", "c"], "no agent 'c'; known: a, b"),
        (["--step", "0", "--all-steps"], "choose one"),
    ],
)
def test_a_filter_that_cannot_match_says_why(
    cli: Cli, folder: Path, arguments: list[str], reason: str
) -> None:
    done = cli("rollouts", "show", str(folder), *arguments)
    assert done.code == 2
    assert reason in done.err


def test_a_models_text_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\rc\n\u202ed [red]") == ("a\\x1b[2Jb\\rc\n           \\u202ed [red]")


def test_run_trains_and_shows_what_it_knows_the_second_time(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(tiny_pair(tmp_path)))
    first = cli("run", str(path), "--json")
    assert first.code == 0
    assert "step 2 of 2: reward a " in first.err
    facts = json.loads(first.out)
    assert (facts["label"], facts["steps"]) == ("hacpo a+b s0", 2)
    assert set(facts["agents"]["a"]["before"]) == {"avg@2", "greedy"}
    assert (Path(facts["agents"]["b"]["model"]) / "model.safetensors").is_file()
    second = cli("run", str(path))
    assert "is done already" in second.err
    after = 100 * facts["agents"]["a"]["after"]["avg@2"]
    assert re.search(rf"a +avg@2 +[\d.]+ +{after:.1f}\b", second.out)
    assert f"model a: {facts['agents']['a']['model']}" in second.out
    rows = json.loads(cli("rollouts", "show", "hacpo a+b s0", "--limit", "99", "--json").out)
    assert len(rows["rows"]) == 32  # 4 problems x 4 responses x 2 agents of the newest step
    (cell,) = json.loads(cli("status", "runs", "--json").out)["cells"]
    assert (cell["state"], cell["steps_done"], cell["key"]) == ("done", 2, facts["key"])


def test_ctrl_c_hands_the_cell_back_and_tells_how_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(tiny_pair(tmp_path) | {"steps": 2000}))
    with subprocess.Popen(
        [*COMMAND, "run", str(path)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "step 2 of 2000" in line:
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
    assert process.returncode == 130
    assert "run the same command again to resume" in rest.strip().split("\n")[-1]
    assert "Traceback" not in rest
    with Registry.open(default_registry_url()) as registry:
        (cell,) = registry.sweep("runs").cells
    assert cell.state == "queued"
    assert cell.steps_done >= 2
