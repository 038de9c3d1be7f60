"""`hacpo sweep`, `hacpo cell` and `hacpo queue` as people and scripts use them."""

import json
from pathlib import Path

import pytest
import yaml

from hacpo.places import default_registry_url, run_folder, run_id_of
from hacpo.registry import Registry
from tests.cli_runner import Cli
from tests.registry.helpers import summary
from tests.tiny import tiny_pair

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """Three cells of tiny models: gspo for each of two agents, and hacpo."""
    config = tiny_pair(tmp_path / "tiny")
    del config["method"], config["seed"]
    section = {"combinations": [["a", "b"]], "methods": ["gspo", "hacpo"], "seeds": [0]}
    path = tmp_path / "grid.yaml"
    path.write_text(yaml.safe_dump(config | {"grid": section, "name": "tiny"}))
    return path


def registry() -> Registry:
    return Registry.open(default_registry_url())


def refusal(cli: Cli, *command: str) -> str:
    """The one line of a refused command."""
    done = cli(*command)
    assert done.code == 2, done
    assert done.err.count("\n") == 1
    assert not done.out
    return done.err


def test_submit_says_what_is_new_and_runs_nothing_twice(cli: Cli, grid: Path) -> None:
    assert "tiny: 3 cells: 3 new" in cli("sweep", "submit", str(grid), "--owner", "ann").out
    with registry() as opened:
        held = opened.claim("me", host="box", pid=1)
        assert held is not None
        opened.finish(held)
        failed = opened.claim("me", host="box", pid=1)
        assert failed is not None
        opened.fail(failed, "oom", "too large", requeue=False)
    told = cli("sweep", "submit", str(grid), "--name", "again", "--priority", "3").out
    assert "again: 3 cells: 1 queued already, 1 done, 1 failed before and queued again" in told
    listed = json.loads(cli("sweep", "list", "--json").out)["sweeps"]
    facts = {row["name"]: (row["state"], row["priority"]) for row in listed}
    assert facts == {"tiny": ("queued", 0), "again": ("queued", 3)}
    assert [row["name"] for row in listed if row["owner"] == "ann"] == ["tiny"]
    assert "again" not in cli("sweep", "list", "--owner", "ann").out


def test_pause_resume_cancel_and_fill_tell_how_it_stands(cli: Cli, grid: Path) -> None:
    cli("sweep", "submit", str(grid))
    with registry() as opened:
        held = opened.claim("me", host="box", pid=1)
        assert held is not None
        told = cli("sweep", "pause", "tiny").out
        assert "tiny is paused: 0 done, 1 running, 2 waiting; running cells stop" in told
        opened.release(held)
    assert "tiny is queued" in cli("sweep", "resume", "tiny").out
    for _ in range(2):
        assert (
            "tiny is cancelled: 0 done, 0 running, 3 waiting" in cli("sweep", "cancel", "tiny").out
        )
    assert "tiny (cancelled): 3 cells: 3 cancelled" in cli("sweep", "show", "tiny").out
    assert "nothing is queued" in cli("queue").out
    assert "0 failed cells queued again, 3 waiting" in cli("sweep", "fill", "tiny").out
    cli("sweep", "priority", "tiny", "7")
    queued = json.loads(cli("queue", "--json").out)["queued"]
    assert [row["priority"] for row in queued] == [7, 7, 7]
    assert "gspo a s0" in cli("queue").out


def test_an_exported_sweep_is_imported_elsewhere(
    cli: Cli, grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("sweep", "submit", str(grid))
    with registry() as opened:
        held = opened.claim("me", host="box", pid=1)
        assert held is not None
        opened.record_step(held, summary(0, dict.fromkeys(held.agents, 0.5)))
        opened.finish(held)
    for name in ("tiny.json", "tiny.json.gz"):
        assert "3 cells, 1 with results" in cli("sweep", "export", "tiny", str(tmp_path / name)).out
    assert {path.name for path in tmp_path.glob("*tiny.json*")} == {"tiny.json", "tiny.json.gz"}
    monkeypatch.setenv("HACPO_HOME", str(tmp_path / "elsewhere"))
    file = str(tmp_path / "tiny.json.gz")
    assert "1 results taken, 0 here already, 2 cells queued" in cli("sweep", "import", file).out
    assert "0 results taken, 1 here already, 0 cells queued" in cli("sweep", "import", file).out


def test_a_clone_does_not_go_where_nothing_starts(cli: Cli, grid: Path) -> None:
    cli("sweep", "submit", str(grid))
    cli("sweep", "cancel", "tiny")
    done = cli("cell", "clone", "hacpo a+b s0", "--set", "seed=7", "--sweep", "tiny")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "sweep 'tiny' is cancelled, so it would not start" in done.err


def test_nobody_replaces_another_persons_sweep(cli: Cli, grid: Path) -> None:
    cli("sweep", "submit", str(grid), "--owner", "ann")
    done = cli("sweep", "submit", str(grid), "--owner", "bob")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "sweep 'tiny' is ann's" in done.err
    assert "3 cells: 3 queued already" in cli("sweep", "submit", str(grid), "--owner", "ann").out


def test_the_list_of_single_trainings_is_no_name_for_a_grid(cli: Cli, grid: Path) -> None:
    done = cli("sweep", "submit", str(grid), "--name", "runs")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "'runs' lists the trainings of `hacpo run`" in done.err


def test_a_clone_is_new_work_and_must_differ(cli: Cli, grid: Path) -> None:
    cli("sweep", "submit", str(grid))
    told = cli("cell", "clone", "hacpo a+b s0", "--set", "update.learning_rate=7e-3").out
    assert "hacpo update.learning_rate=7e-3 a+b s0" in told
    assert "in sweep clones: 1 cells: 1 new" in told
    other = cli("cell", "clone", "hacpo a+b s0", "--set", "seed=5", "--sweep", "tiny", "--json")
    assert json.loads(other.out)["label"] == "hacpo a+b s5"
    with registry() as opened:
        assert [cell.seed for cell in opened.sweep("tiny").cells] == [0, 0, 0, 5]
        assert opened.sweep("tiny").config["grid"]["seeds"] == [0]
    before = len(json.loads(cli("sweep", "list", "--json").out)["sweeps"])
    for settings, told in {
        ("update.learning_rat=1",): "update.learning_rat",
        ("steps=0",): "steps",
        ("threads=2",): "would not come out differently",
        (): "nothing would differ",
    }.items():
        chosen = [word for setting in settings for word in ("--set", setting)]
        assert told in refusal(cli, "cell", "clone", "hacpo a+b s0", *chosen)
    assert "no cell 'nope'" in refusal(cli, "cell", "clone", "nope", "--set", "seed=1")
    assert "no sweep 'nope'" in refusal(
        cli, "cell", "clone", "hacpo a+b s0", "--set", "seed=9", "--sweep", "nope"
    )
    assert len(json.loads(cli("sweep", "list", "--json").out)["sweeps"]) == before


def test_logs_of_a_cell_that_has_not_begun_here_are_one_line(cli: Cli, grid: Path) -> None:
    cli("sweep", "submit", str(grid))
    assert "has no files" in refusal(cli, "cell", "logs", "hacpo a+b s0")
    with registry() as opened:
        key = opened.cell("hacpo a+b s0").cell.key
    folder = run_folder(run_id_of(key))
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert "has not begun" in refusal(cli, "cell", "logs", "hacpo a+b s0")
    (folder / "run.log").write_text("one\ntwo\nthree\n")
    assert cli("cell", "logs", "hacpo a+b s0").out == "one\ntwo\nthree\n"
    assert cli("cell", "logs", key[:10], "--tail", "2").out == "two\nthree\n"


def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    cli: Cli, grid: Path, home: Path, tmp_path: Path
) -> None:
    seeds = f"grid.seeds={list(range(33_334))}"
    told = refusal(cli, "sweep", "submit", str(grid), "--set", seeds)
    assert "up to 100,002 cells" in told
    assert "confirm with --yes" in told
    empty = tmp_path / "empty.yaml"
    nothing = yaml.safe_load(grid.read_text())
    nothing["grid"]["methods"] = []
    empty.write_text(yaml.safe_dump(nothing))
    assert "at least one method or variant" in refusal(cli, "sweep", "submit", str(empty))
    broken = tmp_path / "broken.yaml"
    broken.write_text("agents: [a\n")
    assert "broken.yaml" in refusal(cli, "sweep", "submit", str(broken))
    assert "nowhere.yaml" in refusal(cli, "sweep", "submit", str(tmp_path / "nowhere.yaml"))
    assert not (home / "registry.db").exists()


def test_unknown_names_are_told_with_the_known_ones(cli: Cli, grid: Path, tmp_path: Path) -> None:
    cli("sweep", "submit", str(grid), "--owner", "ann")
    assert "no sweep of owner 'bob'; owners: ann" in refusal(cli, "sweep", "list", "--owner", "bob")
    for command in ("show", "pause", "resume", "cancel", "fill"):
        assert "no sweep 'nope' in the registry; known: tiny" in refusal(
            cli, "sweep", command, "nope"
        )
    assert "no sweep 'nope'" in refusal(cli, "sweep", "export", "nope", str(tmp_path / "x.json"))
    garbage = tmp_path / "garbage.json"
    garbage.write_text("{")
    assert "is no exported sweep" in refusal(cli, "sweep", "import", str(garbage))
    garbage.write_text("{}")
    assert "not an exported sweep" in refusal(cli, "sweep", "import", str(garbage))
    assert "cannot be read" in refusal(cli, "sweep", "import", str(tmp_path / "absent.json"))
    missing = tmp_path / "no" / "folder.json"
    assert str(missing) in refusal(cli, "sweep", "export", "tiny", str(missing))
