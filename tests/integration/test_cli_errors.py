"""Bad input to `hacpo run`: one clear line, exit code 2, nothing started."""

import contextlib
import json
import resource
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hacpo.registry import Registry
from tests.cli_runner import COMMAND, environment, in_process
from tests.servers import free_port
from tests.tiny import CHARACTERS, tiny_model, tiny_pair, tiny_tokenizer

Config = dict[str, Any]
Refused = Callable[..., str]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    (folder / "run.yaml").write_text(yaml.safe_dump(tiny_pair(folder)))
    return folder


@pytest.fixture
def config(models: Path) -> Config:
    """Of a run that would work; each test breaks one thing."""
    data: Config = yaml.safe_load((models / "run.yaml").read_text())
    return data


@pytest.fixture
def refused(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs a config, asserts that it is refused as it should be; returns the one line."""

    def call(config: Config | str, *arguments: str) -> str:
        path = tmp_path / "bad.yaml"
        path.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
        code, out, err = in_process(capsys)("run", str(path), *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("hacpo: error: ")
        assert not (home / "runs").exists()
        if (home / "registry.db").exists():
            with Registry.open(f"sqlite:///{home}/registry.db") as registry:
                assert registry.sweeps() == []
        return err

    return call


def test_an_unknown_key_is_refused_with_the_nearest_name(config: Config, refused: Refused) -> None:
    config["update"]["learning_rte"] = 1e-3
    line = refused(config)
    assert "bad.yaml: unknown key 'update.learning_rte'; did you mean 'learning_rate'?" in line


def test_an_unknown_method_is_refused_with_the_known_ones(config: Config, refused: Refused) -> None:
    line = refused(config | {"method": "ppo"})
    assert "unknown method 'ppo'" in line
    assert "gspo_x2" in line
    assert "hacpo" in line


def test_a_duplicate_agent_id_is_refused_with_its_line(refused: Refused) -> None:
    line = refused("agents:\n  a: {model: x}\n  a: {model: y}\n")
    assert "line 3: duplicate key 'a'" in line


def test_delta_is_explained(config: Config, refused: Refused) -> None:
    config["algorithm"]["delta"] = 0.2
    assert "write floor = 1 - delta" in refused(config)


def test_a_single_agent_method_with_two_agents_tells_of_agent(
    config: Config, refused: Refused
) -> None:
    line = refused(config, "--set", "method=gspo")
    assert "gspo trains one agent alone but the config has 2 (a, b)" in line
    assert "--agent" in line


def test_an_unknown_agent_is_refused_with_the_known_ones(config: Config, refused: Refused) -> None:
    line = refused(config, "--agent", "c", "--set", "method=gspo")
    assert "unknown agent 'c'; known: a, b" in line


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("steps", "override 'steps' is not key=value"),
        ("steps=[1", "override 'steps=[1': the value is not YAML"),
        ("steps.more=1", "'steps' is a value, not a section"),
        ("steps=-1", "steps: Input should be greater than or equal to 1 (found -1)"),
        ("stepz=1", "unknown key 'stepz'; did you mean 'steps'?"),
    ],
)
def test_an_invalid_override_is_refused(
    config: Config, refused: Refused, override: str, reason: str
) -> None:
    assert reason in refused(config, "--set", override)


def test_malformed_yaml_is_refused_with_its_line(refused: Refused) -> None:
    line = refused("agents: {a: {model: x}\nsteps: 2\n")
    assert "bad.yaml: malformed YAML" in line
    assert "line 2" in line


def test_a_missing_model_folder_is_refused(
    config: Config, refused: Refused, tmp_path: Path
) -> None:
    config["agents"]["a"]["model"] = str(tmp_path / "nothing")
    assert str(tmp_path / "nothing") in refused(config)


def test_a_folder_that_holds_no_model_is_refused(
    config: Config, refused: Refused, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    config["agents"]["a"]["model"] = str(tmp_path / "empty")
    line = refused(config)
    assert str(tmp_path / "empty") in line
    assert "config.json" in line


def test_a_model_without_an_end_token_is_refused(
    config: Config, refused: Refused, tmp_path: Path
) -> None:
    tokenizer = tiny_tokenizer(CHARACTERS, end=False)
    endless = tiny_model(tmp_path / "endless", tokenizer, width=16, seed=0)
    config["agents"]["b"]["model"] = str(endless)
    line = refused(config)
    assert "agent 'b'" in line
    assert "end token" in line


GOOD = '{"id": "x1", "problem": "1+1=", "answer": "0"}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "own.jsonl: holds no problems"),
        (f"{GOOD}\n{{oops\n", "own.jsonl line 2: is not JSON"),
        (f'{GOOD}\n\n{{"id": "x2", "problem": "p"}}\n', "own.jsonl line 3: 'answer' is missing"),
        (f'{{"id": "x2", "problem": "p", "answer": 7}}\n{GOOD}', "own.jsonl line 1: answer is 7"),
        (f"{GOOD}\n{GOOD}\n", "own.jsonl line 2: id 'x1' already stands on line 1"),
    ],
)
def test_an_unusable_problem_file_is_refused_with_file_and_line(
    config: Config, refused: Refused, tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "own.jsonl").write_text(text)
    config["problems"]["train"] = str(tmp_path / "own.jsonl")
    assert reason in refused(config)


def test_a_missing_problem_file_is_refused(
    config: Config, refused: Refused, tmp_path: Path
) -> None:
    config["problems"]["held_out"] = str(tmp_path / "none.jsonl")
    assert "none.jsonl: no such problem file" in refused(config)


def test_held_out_problems_that_are_trained_on_are_refused(
    config: Config, refused: Refused, tmp_path: Path
) -> None:
    lines = Path(config["problems"]["train"]).read_text().split("\n")
    both = json.loads(lines[3]) | {"id": "renamed"}
    (tmp_path / "own.jsonl").write_text(f"{json.dumps(both)}\n{GOOD}\n")
    config["problems"]["held_out"] = str(tmp_path / "own.jsonl")
    line = refused(config)
    assert "1 of 2 held-out problems are also in the train set" in line
    assert "'renamed'" in line


def test_a_reward_that_cannot_be_imported_is_refused(config: Config, refused: Refused) -> None:
    config["verifier"] = {"type": "custom", "reward": "no_such_module:reward"}
    assert "no_such_module" in refused(config)


@pytest.mark.parametrize(("setting", "package"), [("engine=vllm", "vllm"), ("lora.rank=2", "peft")])
def test_a_package_that_is_not_installed_is_named_before_anything_runs(
    config: Config,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    package: str,
) -> None:
    monkeypatch.setattr("hacpo.extras.find_spec", lambda name: None)
    line = refused(config, "--set", f"agents.a.{setting}")
    assert f"agent 'a': {setting.partition('=')[0].partition('.')[0]}" in line
    assert f"needs the package {package}: pip install" in line


def test_an_unreachable_mlflow_is_refused_unless_offline(config: Config, refused: Refused) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    config["tracking"] = {"uri": uri}
    line = refused(config)
    assert f"MLflow does not answer at {uri}" in line
    assert "--offline" in line
    # With --offline the same config gets as far as its next mistake.
    config["verifier"] = {"type": "custom", "reward": "hacpo.errors:no_such_reward"}
    assert "no_such_reward" in refused(config, "--offline")


def test_a_registry_of_a_newer_schema_is_refused(
    config: Config, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = tmp_path / "newer.db"
    Registry.open(f"sqlite:///{newer}").close()
    with contextlib.closing(sqlite3.connect(newer, isolation_level=None)) as database:
        (table,) = database.execute(
            "SELECT name FROM sqlite_master WHERE name LIKE '%version%'"
        ).fetchone()
        database.execute(f"UPDATE {table} SET version_num = '9999'")
    monkeypatch.setenv("HACPO_REGISTRY_URL", f"sqlite:///{newer}")
    line = refused(config)
    assert "schema 9999, newer than this code's" in line
    assert "upgrade hacpo" in line


@pytest.mark.parametrize("place", ["file/below", "/proc/hacpo"])
def test_an_unwritable_home_is_refused(
    config: Config, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").write_text("a file, not a folder")
    monkeypatch.setenv("HACPO_HOME", str(tmp_path / place))  # an absolute place stays as it is
    line = refused(config)
    assert f"{tmp_path / place}: cannot be written" in line
    assert "set HACPO_HOME" in line


def test_a_checkpoint_without_space_fails_and_leaves_no_half_of_it(
    config: Config, home: Path, tmp_path: Path
) -> None:
    """Files are limited to less than a model's size, as a full disk would."""
    tokenizer = tiny_tokenizer(CHARACTERS)
    large = tiny_model(tmp_path / "large", tokenizer, width=384, seed=0)
    limit = (large / "model.safetensors").stat().st_size - 4096
    assert limit > 5_000_000  # so that nothing else meets it
    config["agents"] = {"a": {"model": str(large)}}
    config |= {"method": "gspo", "evaluate": {"samples": 0, "greedy": False}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    done = subprocess.run(
        [*COMMAND, "run", str(tmp_path / "run.yaml")],
        env=environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().split("\n")[-1]
    assert last.startswith("hacpo: error: ")
    assert "000001" in last
    (checkpoints,) = (home / "runs").glob("*/checkpoints")
    assert list(checkpoints.iterdir()) == []
    with Registry.open(f"sqlite:///{home}/registry.db") as registry:
        (cell,) = registry.sweep("runs").cells
        assert (cell.state, cell.error_kind) == ("queued", "infrastructure")  # to be tried again
        assert registry.cell(cell.key).checkpoints == []
