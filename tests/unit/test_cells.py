"""Cell keys: exactly what a method reads, nothing more."""

from pathlib import Path
from typing import Any

import pytest

from hacpo import inputs
from hacpo.cells import expand, run_cell_spec
from hacpo.errors import ConfigError, DataError
from hacpo.presets import load_grid, load_run
from tests.benchmark_data import write_problems

CONFIGS = Path(__file__).parents[2] / "configs"
PAIR: dict[str, Any] = {
    "agents": {"a": {"model": "embedded:a"}, "b": {"model": "embedded:b"}},
    "problems": {"train": "embedded:train", "held_out": "embedded:held_out"},
}


def key(tmp_path: Path, *overrides: str, agent: str | None = None, base: Any = PAIR) -> str:
    return run_cell_spec(load_run(base, overrides, agent), tmp_path).key


def test_the_default_grid_has_12_cells(tmp_path: Path) -> None:
    cells = expand(load_grid(CONFIGS / "embedded" / "grid.yaml"), tmp_path)
    by_method = [cell.method for cell in cells]
    counts = {method: by_method.count(method) for method in sorted(set(by_method))}
    assert counts == {"gspo": 4, "gspo_x2": 4, "hacpo": 2, "naive": 2}
    # 60 steps x 8 problems x 8 responses = 3840 for one agent; x2 for two agents or gspo_x2
    assert {cell.rollouts for cell in cells} == {3840, 7680}


def test_the_gspo_cell_of_a_model_is_one_cell_in_every_pair_file(tmp_path: Path) -> None:
    other: dict[str, Any] = {
        "agents": {"left": {"model": "embedded:a"}, "c": {"model": "embedded:c"}},
        "problems": PAIR["problems"],
        "algorithm": {"floor": 0.9, "alpha": 3},  # Table 5 differs by pair; gspo reads neither
    }
    first = expand(load_grid({**PAIR, "grid": _grid([["a", "b"]])}), tmp_path)
    second = expand(load_grid({**other, "grid": _grid([["left", "c"]])}), tmp_path)
    shared = {cell.key for cell in first} & {cell.key for cell in second}
    assert {cell.label for cell in first if cell.key in shared} == {"gspo a s0", "gspo_x2 a s0"}


def _grid(combinations: list[list[str]]) -> dict[str, Any]:
    return {"combinations": combinations, "methods": ["gspo", "gspo_x2", "hacpo"], "seeds": [0]}


def test_the_order_of_agents_does_not_matter(tmp_path: Path) -> None:
    turned = {**PAIR, "agents": dict(reversed(PAIR["agents"].items()))}
    assert key(tmp_path) == key(tmp_path, base=turned)


@pytest.mark.parametrize(
    "override",
    [
        "checkpoints.every=3",
        "update.micro_tokens=2",
        "threads=2",
        "name=other",
        "tracking.kl_every=5",
        "agents.a.end_tokens=[]",
        "rollout.batch_rows=8",
        "algorithm.token_clip_low=0.1",  # only grpo reads it
    ],
)
def test_what_hacpo_does_not_read_leaves_its_key_alone(tmp_path: Path, override: str) -> None:
    assert key(tmp_path) == key(tmp_path, override)


@pytest.mark.parametrize(
    "override",
    [
        "seed=1",
        "steps=7",
        "algorithm.alpha=2",
        "algorithm.floor=null",
        "algorithm.floor_step=0",
        "algorithm.modulation=false",
        "algorithm.capability_aware=false",
        "algorithm.kl=0.001",
        "update.learning_rate=1e-5",
        "update.rows_per_update=16",
        "rollout.truncated=zero",
        "rollout.drop_changed=true",
        "evaluate.samples=3",
        "verifier.type=marker",
        "agents.a.prompt='Q: {problem}'",
        "agents.a.end_tokens=['#']",
        "agents.a.dtype=bfloat16",
    ],
)
def test_what_hacpo_reads_changes_its_key(tmp_path: Path, override: str) -> None:
    assert key(tmp_path) != key(tmp_path, override)


def test_a_new_version_of_bfloat16_changes_the_keys_of_its_agents_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halved = "agents.a.dtype=bfloat16"
    before = key(tmp_path), key(tmp_path, halved)
    monkeypatch.setattr("hacpo.cells.BFLOAT16_VERSION", 99)
    assert key(tmp_path) == before[0]
    assert key(tmp_path, halved) != before[1]


def test_compiling_changes_the_keys_of_agents_with_vllm_only(tmp_path: Path) -> None:
    compiled, vllm = "vllm.compile_on_cpu=true", "agents.b.engine=vllm"
    assert key(tmp_path) == key(tmp_path, compiled)
    assert key(tmp_path, vllm) != key(tmp_path, vllm, compiled)


def test_gspo_reads_neither_floor_nor_capability(tmp_path: Path) -> None:
    same = ["algorithm.floor=0.5", "algorithm.alpha=3", "algorithm.capability_window=2"]
    plain = key(tmp_path, "method=gspo", agent="a")
    assert plain == key(tmp_path, "method=gspo", *same, agent="a")
    assert plain != key(tmp_path, "method=gspo", "algorithm.clip_low=0.1", agent="a")


def test_gspo_x2_is_gspo_with_twice_the_responses(tmp_path: Path) -> None:
    double = key(tmp_path, "method=gspo_x2", "rollout.responses_per_problem=4", agent="a")
    assert double == key(tmp_path, "method=gspo", "rollout.responses_per_problem=8", agent="a")


def test_initial_has_one_cell_whatever_the_seed(tmp_path: Path) -> None:
    first = key(tmp_path, "method=initial", "seed=0", agent="a")
    assert first == key(tmp_path, "method=initial", "seed=5", "steps=3", agent="a")
    assert first != key(tmp_path, "method=initial", agent="b")


def test_initial_is_graded_under_the_truncation_rule(tmp_path: Path) -> None:
    first = key(tmp_path, "method=initial", "rollout.truncated=zero", agent="a")
    assert first != key(tmp_path, "method=initial", "rollout.truncated=drop", agent="a")


def test_gspo_xn_follows_the_number_of_agents(tmp_path: Path) -> None:
    agents = {**PAIR["agents"], "c": {"model": "embedded:c"}}
    grid = {
        "combinations": [["a", "b", "c"], ["a", "b"]],
        "methods": ["gspo_xN"],
        "seeds": [0],
    }
    cells = expand(load_grid({**PAIR, "agents": agents, "grid": grid}), tmp_path)
    assert sorted(cell.label for cell in cells) == [
        "gspo_x2 a s0",
        "gspo_x2 b s0",
        "gspo_x3 a s0",
        "gspo_x3 b s0",
        "gspo_x3 c s0",
    ]


def test_an_ablations_own_default_is_a_column_that_shares_the_cell(tmp_path: Path) -> None:
    grid = _grid([["a", "b"]]) | {"methods": ["hacpo"]}
    grid["variants"] = {f"alpha_{n}": {"set": {"algorithm.alpha": n}} for n in (0, 1)}
    cells = {cell.method: cell.key for cell in expand(load_grid({**PAIR, "grid": grid}), tmp_path)}
    assert set(cells) == {"hacpo", "alpha_0", "alpha_1"}
    assert cells["alpha_1"] == cells["hacpo"] != cells["alpha_0"]


def test_variants_are_named_columns_with_their_own_settings(tmp_path: Path) -> None:
    cells = expand(load_grid(CONFIGS / "embedded" / "full.yaml"), tmp_path)
    by_method = {cell.method: cell for cell in cells}
    assert by_method["hacpo_no_clip"].config["algorithm"]["floor"] is None
    assert by_method["hacpo_no_modulation"].config["algorithm"]["modulation"] is False
    assert len({cell.key for cell in cells}) == len(cells)


def test_an_own_reward_is_found_in_the_current_folder_and_its_text_is_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the `hacpo` script does not have it on its path
    own = ["verifier.type=custom", "verifier.reward=rewards_of_mine:reward"]
    (tmp_path / "rewards_of_mine.py").write_text("def reward(problem, response): return 1.0\n")
    first = key(tmp_path, *own)
    (tmp_path / "rewards_of_mine.py").write_text("def reward(problem, response): return 0.0\n")
    assert key(tmp_path, *own) != first
    with pytest.raises(ConfigError, match="module 'nowhere' is not found"):
        key(tmp_path, "verifier.type=custom", "verifier.reward=nowhere:reward")


def test_fewer_problems_than_one_step_takes_are_refused_before_a_cell_exists(
    tmp_path: Path,
) -> None:
    few = load_run(CONFIGS / "embedded" / "pair.yaml", ["update.problems_per_step=100000"])
    with pytest.raises(DataError, match=r"usable problems, but a step takes 100000: lower update"):
        run_cell_spec(few, tmp_path)


def test_where_a_reward_lies_is_no_part_of_the_key(tmp_path: Path) -> None:
    keys = set()
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "placed.py").write_text("def reward(problem, response): return 1.0\n")
        overrides = ["verifier.type=custom", "verifier.reward=placed:reward"]
        overrides.append(f"verifier.folder={tmp_path / place}")
        config = load_run(CONFIGS / "embedded" / "pair.yaml", overrides)
        keys.add(run_cell_spec(config, tmp_path).key)
    assert len(keys) == 1


def test_the_real_pair_is_known_before_anything_is_downloaded(tmp_path: Path) -> None:
    config = load_run(CONFIGS / "real" / "smollm2+gemma3.yaml")
    cell = run_cell_spec(config, tmp_path / "home")
    identities = [agent["identity"] for agent in cell.agents.values()]
    assert [identity.partition("@")[0] for identity in identities] == [
        "pypi:smollm2",
        "pypi:gemma3-270m",
    ]
    assert not (tmp_path / "home").exists()
    assert config.agents["gemma3"].end_tokens == ("\n", "\n\n")


def test_variables_of_a_template_are_part_of_the_key_once_there_are_any(tmp_path: Path) -> None:
    plain = key(tmp_path)
    assert key(tmp_path, "agents.a.chat_template_kwargs={}") == plain
    thinks = "agents.a.chat_template_kwargs={enable_thinking: false}"
    assert key(tmp_path, thinks) not in (plain, key(tmp_path, thinks.replace("false", "true")))


def test_benchmarks_are_part_of_the_key_once_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the content of their files, and never of a config without them."""
    data = tmp_path / "data"
    monkeypatch.setenv("HACPO_DATA", str(data))
    write_problems(data / "gsm8k.jsonl", [("1 + 1?", "2")])
    plain, asked = key(tmp_path), key(tmp_path, "evaluate.benchmarks=[gsm8k]")
    assert key(tmp_path, "evaluate.benchmark_tokens=4096") == plain != asked
    changes = ("benchmark_tokens=4096", "benchmark_limit=20", "benchmark_prompt='{problem}?'")
    keys = [
        key(tmp_path, "evaluate.benchmarks=[gsm8k]", f"evaluate.{change}") for change in changes
    ]
    assert len({plain, asked, *keys}) == 5
    inputs._benchmark_digest.cache_clear()
    write_problems(data / "gsm8k.jsonl", [("1 + 2?", "3")])
    assert key(tmp_path, "evaluate.benchmarks=[gsm8k]") != asked


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("evaluate.benchmarks=[gsm9k]", "evaluate.benchmarks.0: Input should be 'math500', 'math"),
        ("evaluate.benchmarks=[gsm8k, gsm8k]", "a benchmark is listed twice"),
        ("evaluate.benchmark_prompt=Solve it", "the template must contain {problem}"),
    ],
)
def test_benchmarks_that_cannot_be_are_refused(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_run(PAIR, [override])
    assert said in str(error.value)


def test_a_benchmark_without_its_file_is_refused_before_a_cell_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HACPO_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"math_test\.jsonl: no such file"):
        key(tmp_path, "evaluate.benchmarks=[math]")
