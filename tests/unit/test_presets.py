"""Reading configs: merging, overrides, and errors that name file, key and remedy."""

from pathlib import Path

import pytest

from hacpo.config import GridConfig, RunConfig, parse_method
from hacpo.errors import ConfigError
from hacpo.presets import load_grid, load_run

CONFIGS = Path(__file__).parents[2] / "configs"
MINIMAL = {
    "agents": {"a": {"model": "embedded:a"}, "b": {"model": "embedded:b"}},
    "problems": {"train": "embedded:train", "held_out": "embedded:held_out"},
}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda p: p.name)
def test_every_config_of_the_project_loads(path: Path) -> None:
    assert isinstance(load_run(path), RunConfig)
    if "grid" in path.read_text():
        assert isinstance(load_grid(path), GridConfig)


def test_the_default_grid_is_the_trial_that_worked() -> None:
    grid = load_grid(CONFIGS / "embedded" / "grid.yaml")
    assert grid.grid.methods == ["gspo", "gspo_x2", "naive", "hacpo"]
    assert grid.grid.seeds == [0, 1]
    assert (grid.steps, grid.update.problems_per_step, grid.rollout.responses_per_problem) == (
        60,
        8,
        8,
    )
    assert (grid.update.learning_rate, grid.update.rows_per_update) == (1e-4, 64)
    a = grid.algorithm
    assert (a.clip_low, a.clip_high, a.floor, a.floor_step, a.alpha, a.capability_window) == (
        0.02,
        0.02,
        0.8,
        0.01,
        1,
        5,
    )


def test_extends_merges_sections_and_replaces_lists(tmp_path: Path) -> None:
    write(tmp_path, "base.yaml", "update: {learning_rate: 1.0e-3, micro_tokens: 4}\nlist: [1, 2]\n")
    write(tmp_path, "mid.yaml", "extends: base.yaml\nupdate: {micro_tokens: 8}\nlist: [3]\n")
    from hacpo.presets import _read_file

    merged = _read_file(tmp_path / "mid.yaml", ())
    assert merged == {"update": {"learning_rate": 1e-3, "micro_tokens": 8}, "list": [3]}


def test_extending_in_a_circle_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "extends: b.yaml\n")
    write(tmp_path, "b.yaml", "extends: a.yaml\n")
    with pytest.raises(ConfigError, match="extends itself"):
        load_run(tmp_path / "a.yaml")


def test_overrides_win_and_are_read_as_yaml() -> None:
    config = load_run(MINIMAL, ["algorithm.floor=null", "update.learning_rate=2e-6", "steps=3"])
    assert (config.algorithm.floor, config.update.learning_rate, config.steps) == (None, 2e-6, 3)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algorthm.alpha=1"], "unknown key 'algorthm'; did you mean 'algorithm'"),
        (["algorithm.alhpa=1"], "unknown key 'algorithm.alhpa'; did you mean 'alpha'"),
        (["agents.a.modle=x"], "unknown key 'agents.a.modle'; did you mean 'model'"),
        (["algorithm.delta=0.2"], "write floor = 1 - delta"),
        (["method=hacpoo"], "unknown method 'hacpoo'"),
        (["method=gspo"], "trains one agent alone"),
        (["algorithm.floor=1.5"], "algorithm.floor"),
        (["steps=0"], "steps"),
        (["steps"], "is not key=value"),
        (["steps=2", "steps.x=1"], "is a value, not a section"),
        (["verifier.type=custom"], "custom needs reward"),
        (["agents.a.prompt=hello"], "must contain {problem}"),
        (["agents.A!.model=x"], "agents.A!"),
    ],
)
def test_a_mistake_is_told_in_one_line(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_run(MINIMAL, overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mistyped_section_is_told_as_such_not_as_missing() -> None:
    mistyped = {("agentz" if key == "agents" else key): value for key, value in MINIMAL.items()}
    with pytest.raises(ConfigError, match="unknown key 'agentz'; did you mean 'agents'"):
        load_run(mistyped)


def test_a_duplicate_agent_id_names_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, "c.yaml", "agents:\n  a: {model: x}\n  a: {model: y}\n")
    with pytest.raises(ConfigError, match=r"c\.yaml: line 3: duplicate key 'a'"):
        load_run(path)


@pytest.mark.parametrize("text", ["a: [1", "- 1\n- 2\n", "a: 1\n\tb: 2\n"])
def test_malformed_yaml_names_the_file(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "bad.yaml", text)
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        load_run(path)


def test_a_missing_file_is_told() -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_run("nowhere.yaml")


def test_one_agent_can_be_chosen_from_a_pair() -> None:
    config = load_run(MINIMAL, ["method=gspo"], agent="b")
    assert list(config.agents) == ["b"]
    with pytest.raises(ConfigError, match="unknown agent 'z'"):
        load_run(MINIMAL, agent="z")


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"combinations": [["a", "a"]], "methods": ["hacpo"], "seeds": [0]}, "duplicate agent id"),
        ({"combinations": [["a", "z"]], "methods": ["hacpo"], "seeds": [0]}, "unknown agent 'z'"),
        ({"combinations": [["a"]], "methods": ["nope"], "seeds": [0]}, "unknown method 'nope'"),
        ({"combinations": [["a"]], "methods": [], "seeds": [0]}, "at least one method"),
        ({"combinations": [["a"]], "methods": ["hacpo"], "seeds": []}, "grid.seeds"),
        ({"combinations": [["a"]], "methods": ["hacpo"], "seeds": [1, 1]}, "distinct"),
    ],
)
def test_a_grid_that_cannot_be_run_is_refused(grid: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_grid({**MINIMAL, "grid": grid})


def test_gspo_xk_multiplies_responses() -> None:
    assert parse_method("gspo_x3") == ("gspo", 3)
    config = load_run(MINIMAL, ["method=gspo_x2", "rollout.responses_per_problem=8"], agent="a")
    assert config.responses_per_problem == 16


@pytest.mark.parametrize("text", ["extends: 5\n", "extends: [1]\n", "? [a]\n: 1\n"])
def test_odd_yaml_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"odd\.yaml"):
        load_run(write(tmp_path, "odd.yaml", text))


@pytest.mark.parametrize("override", ["agents=[a]", "agents=a"])
def test_agents_that_are_no_mapping_are_refused(override: str) -> None:
    with pytest.raises(ConfigError, match="agents"):
        load_run(MINIMAL, [override], agent="a")


def test_yaml_merge_keys_work(tmp_path: Path) -> None:
    text = (
        "base: &base {learning_rate: 0.5, micro_tokens: 4}\nupdate: {<<: *base, micro_tokens: 8}\n"
    )
    from hacpo.presets import _read_file

    merged = _read_file(write(tmp_path, "merge.yaml", text), ())
    assert merged["update"] == {"learning_rate": 0.5, "micro_tokens": 8}


@pytest.mark.parametrize("name", ["hacpo", "gspo_x2"])
def test_a_variant_may_not_take_a_methods_name(name: str) -> None:
    grid = {"combinations": [["a", "b"]], "methods": ["hacpo"], "seeds": [0]}
    grid["variants"] = {name: {"set": {"algorithm.alpha": 0}}}
    with pytest.raises(ConfigError, match="has the name of a method"):
        load_grid({**MINIMAL, "grid": grid})


def test_paths_of_a_file_are_relative_to_it_wherever_it_is_extended_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    (base / "models" / "m").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write(
        base,
        "base.yaml",
        "agents: {a: {model: models/m}, b: {model: ./later}, c: {model: org/m},"
        " d: {model: embedded:a}}\n"
        "problems: {train: t.jsonl, held_out: embedded:held_out}\n"
        "verifier: {type: custom, reward: 'mine:reward'}\n",
    )
    path = write(tmp_path, "top.yaml", "extends: base/base.yaml\nsteps: 1\n")
    config = load_run(path, ["problems.held_out=h.jsonl"])
    models = {name: agent.model for name, agent in config.agents.items()}
    assert models == {
        "a": str(base / "models" / "m"),
        "b": str(base / "later"),
        "c": "org/m",
        "d": "embedded:a",
    }
    assert config.problems.train == str(base / "t.jsonl")
    assert config.problems.held_out == "h.jsonl"  # of a command line: where it is said
    assert config.verifier.folder == str(base)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("update.learning_rate=.inf", "update.learning_rate: Input should be a finite number"),
        ("algorithm.alpha=.nan", "algorithm.alpha: Input should be"),
        ("method=gspo_x1234", "unknown method 'gspo_x1234'"),
        ("seed=99999999999999999999999", "seed: Input should be less than or equal to"),
        ("device=potato", "device: String should match pattern"),
    ],
)
def test_values_that_nothing_could_be_done_with_are_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_run(MINIMAL, [override])


def test_an_agents_id_may_hold_dots() -> None:
    data = MINIMAL | {
        "agents": {"qwen2.5": {"model": "embedded:a"}, "qwen2": {"model": "embedded:b"}}
    }
    config = load_run(data, ["agents.qwen2.5.dtype=bfloat16", "agents.qwen2.lora.rank=4"])
    assert config.agents["qwen2.5"].dtype == "bfloat16"
    assert config.agents["qwen2"].lora is not None


def test_one_end_token_need_not_be_a_list() -> None:
    config = load_run(MINIMAL, ['agents.a.end_tokens="\\n"'])
    assert config.agents["a"].end_tokens == ("\n",)


def test_vllm_and_a_models_own_code_are_refused_together() -> None:
    with pytest.raises(ConfigError, match="engine vllm does not run code that a model brings"):
        load_run(MINIMAL, ["agents.a.engine=vllm", "agents.a.trust_remote_code=true"])
