"""The presets of the paper's tables: every published setting, and exactly the paper's runs."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from flows.parameters import Override
from hacpo.cells import expand, expand_runs
from hacpo.config import RunConfig
from hacpo.errors import ConfigError, DataError
from hacpo.inputs import ExpectedInputs
from hacpo.plan.gpu import GPUS, LEARNING, SAMPLING, GpuPlanner
from hacpo.preflight import agents_in_use
from hacpo.presets import load_grid
from hacpo.report.paper import paper_row, paper_rows
from hacpo.types import CellSpec
from tests.cli_runner import Cli

TABLES = Path(__file__).parents[2] / "configs" / "tables"
NAMES = ["table1", "table2", "table3", "table4", "table7", "figure4"]
SUFFIX = "Let's think step by step and output the final answer within \\boxed{}."
MODELS = {
    "qwen3-4b": "Qwen/Qwen3-4B",
    "qwen3-4b-instruct": "Qwen/Qwen3-4B-Instruct-2507",
    "qwen3-1.7b-base": "Qwen/Qwen3-1.7B-Base",
    "qwen3-4b-base": "Qwen/Qwen3-4B-Base",
    "qwen3-8b-base": "Qwen/Qwen3-8B-Base",
    "llama3.2-1b-instruct": "meta-llama/Llama-3.2-1B-Instruct",
    "llama3.2-3b-instruct": "meta-llama/Llama-3.2-3B-Instruct",
}
PAIRS = {  # Table 5: alpha, floor, floor_step
    "qwen3-4b+qwen3-4b-instruct": (3, 0.8, 0.01),
    "qwen3-1.7b-base+qwen3-4b-base": (1, 0.8, 0.025),
    "qwen3-4b-base+qwen3-8b-base": (3, 0.8, 0.025),
    "llama3.2-1b-instruct+llama3.2-3b-instruct": (1, 0.9, 0.01),
    "llama3.2-1b-instruct+qwen3-1.7b-base": (1, 0.8, 0.025),
    "llama3.2-3b-instruct+qwen3-4b-base": (1, 0.8, 0.025),
}


@pytest.fixture(autouse=True)
def nothing_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HACPO_DATA", str(tmp_path / "data"))


def runs(table: str) -> list[tuple[str, RunConfig]]:
    return expand_runs(load_grid(TABLES / f"{table}.yaml"))


def cells(table: str, home: Path) -> list[CellSpec]:
    return expand(load_grid(TABLES / f"{table}.yaml"), home, ExpectedInputs(home))


@pytest.mark.parametrize("table", NAMES)
def test_every_run_has_the_papers_settings(table: str) -> None:
    for column, run in runs(table):
        assert {name: agent.model for name, agent in run.agents.items()}.items() <= MODELS.items()
        for name, agent in run.agents.items():
            assert agent.prompt == "{problem} " + SUFFIX
            thinks = {"enable_thinking": False} if name.startswith("qwen3") else {}
            assert agent.chat_template_kwargs == thinks
            assert (agent.dtype, agent.engine, agent.lora) == ("bfloat16", "vllm", None)
        assert run.steps == (150 if table == "figure4" else 58)
        a, rollout, update = run.algorithm, run.rollout, run.update
        assert (a.clip_low, a.clip_high) == (0.0003, 0.0004)
        assert (a.token_clip_low, a.token_clip_high) == (0.2, 0.28)
        assert (a.capability_window, a.kl, a.denominator) == (5, 0.001, "planned")
        assert (rollout.max_prompt_tokens, rollout.max_response_tokens) == (1024, 4096)
        assert (rollout.responses_per_problem, rollout.temperature) == (8, 1.0)
        assert (rollout.truncated, rollout.drop_changed) == ("grade", False)
        assert (update.problems_per_step, update.rows_per_update) == (128, 512)
        assert (update.learning_rate, update.betas) == (1e-6, (0.9, 0.999))
        assert (update.weight_decay, update.max_grad_norm) == (0.01, 1.0)
        assert run.problems.train == "data:math_train.jsonl"
        assert (run.verifier.type, run.verifier.strict) == ("math", True)
        short = table in ("table4", "figure4")
        assert run.evaluate.benchmark_tokens == (4096 if short else 8192)
        assert run.evaluate.benchmark_prompt == "{problem} " + SUFFIX
        seven = ("math500", "math", "gsm8k", "aime25", "amc23", "minerva", "olympiad")
        assert run.evaluate.benchmarks == (seven[:1] if short else seven)
        if run.rule == "hacpo":
            pair = PAIRS["+".join(sorted(run.agents))]
            changed = {"hacpo_no_stepwise": (*pair[:2], 0), "hacpo_no_clip": (3, None, 0.025)}
            if column.startswith("hacpo_alpha_"):
                pair = (int(column[-1]), *pair[1:])
            assert (a.alpha, a.floor, a.floor_step) == changed.get(column, pair)
            assert a.capability_aware == (column != "hacpo_no_capability_advantage")
            assert a.modulation == (column != "hacpo_no_discrepancy_coefficient")
            assert a.guard_baseline


@pytest.mark.parametrize("table", ["table1", "table7"])
def test_each_main_table_is_15_single_6_joint_and_5_untrained(table: str, tmp_path: Path) -> None:
    found = Counter(cell.method for cell in cells(table, tmp_path))
    singles = dict.fromkeys(["initial", "grpo", "gspo", "gspo_x2"], 5)
    assert found == singles | {"naive": 3, "hacpo": 3}


def test_tables_share_what_is_the_same_training(tmp_path: Path) -> None:
    keys = {table: {cell.key for cell in cells(table, tmp_path)} for table in NAMES}
    # 1.7B-Base and 4B-Base alone, and Llama 3B: each untrained and under three methods.
    assert len(keys["table1"] & keys["table7"]) == 12
    assert len(keys["table1"] & keys["table2"] & keys["table3"]) == 1  # hacpo itself
    assert len(set().union(*keys.values())) == 26 + 26 - 12 + 1 + 1 + 8 + 3
    assert {table: len(found) for table, found in keys.items()} == {
        "table1": 26,
        "table2": 2,
        "table3": 2,
        "table4": 8,
        "table7": 26,
        "figure4": 3,
    }


def test_every_line_of_the_papers_tables_has_its_cell(tmp_path: Path) -> None:
    """And the other way round: the report finds the paper's numbers for every cell."""
    lines = {(row.table, frozenset(row.models), row.model, row.method) for row in paper_rows()}
    found = set()
    for table in ("1", "2", "3", "7"):
        grid = load_grid(TABLES / f"table{table}.yaml")
        columns = [*grid.grid.methods, *grid.grid.variants]
        for combination in grid.grid.combinations:
            models = [grid.agents[name].model for name in combination]
            for model in models:
                for column in columns:
                    row = paper_row(models, model, column)
                    assert row is not None, (table, model, column)
                    found.add((row.table, frozenset(row.models), row.model, row.method))
    assert found == lines - {line for line in lines if line[0] == "2" and line[3] == "hacpo"}


def test_rollouts_of_a_control_are_twice_those_of_a_partner(tmp_path: Path) -> None:
    by_method = {cell.method: cell.rollouts for cell in cells("table1", tmp_path)}
    assert by_method["gspo"] == 58 * 128 * 8 == 59_392
    assert by_method["gspo_x2"] == by_method["hacpo"] == by_method["naive"] == 2 * 59_392
    assert by_method["initial"] == 0


def test_what_is_not_here_is_expected_and_what_is_wrong_is_refused(tmp_path: Path) -> None:
    inputs = ExpectedInputs(tmp_path)
    grid = load_grid(TABLES / "table2.yaml")
    keys = {cell.key for cell in expand(grid, tmp_path, inputs)}
    assert set(inputs.missing) == {
        "Qwen/Qwen3-1.7B-Base",
        "Qwen/Qwen3-4B-Base",
        "data:math_train.jsonl",
        *(f"data:{name}.jsonl" for name in ("math500", "math_test", "gsm8k", "aime25")),
        *(f"data:{name}.jsonl" for name in ("amc23", "minerva", "olympiad")),
    }
    assert len(keys) == 2
    with pytest.raises(DataError, match=r"math_train\.jsonl: no such file; `hacpo data fetch all`"):
        expand(
            load_grid(
                TABLES / "table2.yaml",
                [
                    "agents.qwen3-4b-base.model=embedded:a",
                    "agents.qwen3-1.7b-base.model=embedded:b",
                ],
            ),
            tmp_path,
        )
    wrong = load_grid(TABLES / "table2.yaml", ["agents.qwen3-4b-base.model=./nowhere"])
    with pytest.raises(DataError, match="nowhere"):
        expand(wrong, tmp_path, ExpectedInputs(tmp_path))


PARAMETERS = {  # the models' cards: 1.7, 4.0, 8.2, 1.24 and 3.21 thousand million
    "qwen3-1.7b-base": 1.72e9,
    "qwen3-4b-base": 4.02e9,
    "qwen3-8b-base": 8.19e9,
    "llama3.2-1b-instruct": 1.24e9,
    "llama3.2-3b-instruct": 3.21e9,
}


def test_shapes_of_the_papers_models_have_as_many_weights_as_they_say(tmp_path: Path) -> None:
    planner = GpuPlanner(GPUS["h200"])
    for _, run in runs("table7"):
        if run.method == "initial":
            (name,) = run.agents
            (memory,) = planner._memory(run).values()
            assert memory.parameters == pytest.approx(PARAMETERS[name], rel=0.01)


def test_hours_are_the_arithmetic_that_they_say() -> None:
    """GSPO of Qwen3-1.7B: sampled, scored twice (KL), learned from with recomputation."""
    planner = GpuPlanner(GPUS["h100"], response_tokens=1000)
    run = next(
        run
        for column, run in runs("table1")
        if (column, [*run.agents]) == ("gspo", ["qwen3-1.7b-base"])
    )
    found = planner.estimate(run)
    tokens = 58 * 128 * 8 * 1000
    assert found.tokens == tokens
    answers = 500 + 5000 + 1319 + 30 * 30 + 40 + 272 + 674
    parameters = 1_720_574_976
    work = (
        2
        * parameters
        * (tokens / SAMPLING + tokens * (2 + 4) / LEARNING + 2 * answers * 1000 / SAMPLING)
    )
    assert found.hours == pytest.approx(work / 989e12 / 3600, rel=1e-6)
    weights = 6 * parameters  # float32 and bfloat16
    moments, gradients = 8 * parameters, 4 * parameters
    assert found.memory > 1.1 * (weights + moments + gradients)
    pair = next(run for column, run in runs("table1") if column == "hacpo")
    assert planner.estimate(pair).tokens == 2 * tokens


def test_plan_of_a_table_shows_runs_rollouts_tokens_hours_and_memory(cli: Cli) -> None:
    found = cli("grid", "plan", str(TABLES / "table2.yaml"), "--gpu", "h100")
    assert found.code == 0
    for word in ("118,784", "121,634,816", "GPU hours", "GPU GB", "2 cells, 2 new"):
        assert word in found.out, word
    assert "2 need more than the 80 GB of one h100" in found.out
    assert "math_train.jsonl, minerva.jsonl, olympiad.jsonl; `hacpo data fetch all`" in found.out
    data = json.loads(cli("grid", "plan", str(TABLES / "table2.yaml"), "--json").out)
    assert data["gpu"]["name"] == "h200"
    assert data["gpu_hours_of_new"] == pytest.approx(
        sum(cell["estimate"]["hours"] for cell in data["cells"])
    )
    unknown = cli("grid", "plan", str(TABLES / "table2.yaml"), "--gpu", "v100")
    assert (unknown.code, unknown.err) == (
        2,
        "hacpo: error: --gpu v100: unknown kind; known: a100, h100, h200, b200\n",
    )


PAIR: dict[str, Any] = {
    "agents": {"a": {"model": "embedded:a"}, "b": {"model": "embedded:b"}},
    "problems": {"train": "embedded:train", "held_out": "embedded:held_out"},
}


def small_grid(**section: Any) -> dict[str, Any]:
    grid = {"combinations": [["a", "b"]], "methods": ["hacpo"], "seeds": [0]}
    return PAIR | {"grid": grid | section}


def test_settings_of_a_combination_reach_its_runs_and_yield_to_a_variant() -> None:
    variants = {"alpha_0": {"set": {"algorithm.alpha": 0}}}
    for name in ("a+b", "b+a"):
        given = small_grid(settings={name: {"algorithm.alpha": 3}}, variants=variants)
        found = {column: run.algorithm.alpha for column, run in expand_runs(load_grid(given))}
        assert found == {"hacpo": 3, "alpha_0": 0}
    elsewhere = small_grid(settings={"a+a": {"algorithm.alpha": 3}})
    assert [run.algorithm.alpha for _, run in expand_runs(load_grid(elsewhere))] == [1]
    with pytest.raises(ConfigError, match=r"grid\.settings\.a\+z: unknown agent 'z'; known: a, b"):
        load_grid(small_grid(settings={"a+z": {"algorithm.alpha": 3}}))
    with pytest.raises(ConfigError, match="at least one method or variant"):
        load_grid(small_grid(methods=[]))


def test_settings_of_one_agent_leave_the_other_alone() -> None:
    given = small_grid(methods=["gspo"], settings={"a+b": {"agents.b.dtype": "bfloat16"}})
    found = {next(iter(run.agents)): run for _, run in expand_runs(load_grid(given))}
    assert found["a"].agents["a"].dtype == "float32"
    assert found["b"].agents["b"].dtype == "bfloat16"
    wrong = small_grid(settings={"a+b": {"algorithm.alpha": -1}})
    with pytest.raises(ConfigError, match=r"^grid column 'hacpo' of a\+b: algorithm.alpha"):
        expand_runs(load_grid(wrong))


def test_settings_that_make_one_training_into_two_are_refused(tmp_path: Path) -> None:
    pairs = [["a", "b"], ["a", "c"]]
    agents = PAIR["agents"] | {"c": {"model": "embedded:c"}}
    given = small_grid(methods=["gspo"], combinations=pairs, settings={"a+b": {"steps": 30}})
    with pytest.raises(ConfigError, match="'gspo a s0' would be two trainings"):
        expand(load_grid(given | {"agents": agents}), tmp_path)
    given = small_grid(
        methods=["gspo"], combinations=pairs, settings={"a+b": {"algorithm.alpha": 3}}
    )
    assert len(expand(load_grid(given | {"agents": agents}), tmp_path)) == 3


def test_a_pair_of_a_table_can_be_picked(tmp_path: Path) -> None:
    one = "grid.combinations=[[qwen3-4b, qwen3-4b-instruct]]"
    grid = load_grid(TABLES / "table1.yaml", [one])
    assert len(expand(grid, tmp_path, ExpectedInputs(tmp_path))) == 2 * 4 + 2
    assert set(agents_in_use(grid)) == {"qwen3-4b", "qwen3-4b-instruct"}
    override = "agents.qwen3-8b-base.lora.rank=16"
    assert TypeAdapter(Override).validate_python(override) == override


def test_a_typing_error_in_a_file_is_no_missing_download(tmp_path: Path) -> None:
    wrong = load_grid(TABLES / "table2.yaml", ["problems.train='data:math_trian.jsonl'"])
    with pytest.raises(DataError, match=r"math_trian\.jsonl: no such file"):
        expand(wrong, tmp_path, ExpectedInputs(tmp_path))


def test_plan_says_what_it_cannot_estimate_and_does_not_estimate_unasked(cli: Cli) -> None:
    other = ["--set", "agents.qwen3-4b-base.model=org/other"]
    found = cli("grid", "plan", str(TABLES / "table2.yaml"), *other)
    assert found.code == 0
    assert found.out.count(" -  ") >= 3
    assert "not here yet: org/other at main: not in the Hugging Face cache" in found.out
    plain = cli("grid", "plan", str(TABLES.parent / "embedded" / "grid.yaml"))
    assert "GPU hours" not in plain.out
    cpu = cli("grid", "plan", str(TABLES.parent / "embedded" / "grid.yaml"), "--gpu", "h100")
    assert (cpu.code, cpu.err) == (2, "hacpo: error: --gpu: the grid's device is cpu\n")


def test_a_variants_model_is_the_one_that_is_counted() -> None:
    changed = {"agents.qwen3-4b-base.model": "Qwen/Qwen3-8B-Base"}
    grid = load_grid(TABLES / "table2.yaml").model_dump(mode="json")
    grid["grid"]["variants"] = {"larger": {"method": "hacpo", "set": changed}}
    planner = GpuPlanner(GPUS["h200"], 1000)
    hours = {c: planner.estimate(run).hours for c, run in expand_runs(load_grid(grid))}
    assert hours["larger"] > 1.5 * hours["hacpo"]


def test_untrained_models_are_evaluated_once_where_they_are_cells() -> None:
    run = next(run for column, run in runs("table1") if column == "gspo")
    together = GpuPlanner(GPUS["h200"], 1000, untrained_apart=True).estimate(run)
    alone = GpuPlanner(GPUS["h200"], 1000).estimate(run)
    answers = 500 + 5000 + 1319 + 30 * 30 + 40 + 272 + 674
    once = 2 * 4_022_468_096 * answers * 1000 / SAMPLING / 989e12 / 3600
    assert alone.hours - together.hours == pytest.approx(once, rel=1e-6)
