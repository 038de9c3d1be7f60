"""The table of a sweep: every number against one computed by hand."""

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hacpo.cells import expand
from hacpo.config import GridConfig
from hacpo.errors import ConfigError
from hacpo.inputs import ExpectedInputs
from hacpo.presets import load_grid
from hacpo.registry import Registry
from hacpo.report import sweep_report
from hacpo.report.asked import wanted_by_cells, wanted_by_grid
from hacpo.report.estimate import estimate, paired_difference
from hacpo.report.points import Facts
from hacpo.report.report import build_report
from hacpo.report.table import MEAN
from hacpo.types import CellSpec, Evaluation, ProblemScore
from tests.sweep_rows import Sweep

CONFIGS = sorted((Path(__file__).parents[2] / "configs").rglob("*.yaml"))
T_2 = 4.302652730  # 97.5% quantile of Student's t with 2 degrees of freedom, from a printed table


def test_three_seeds_have_a_t_interval() -> None:
    found = estimate({0: 0.70, 1: 0.72, 2: 0.74})
    assert found.mean == pytest.approx(0.72)
    half = T_2 * 0.02 / math.sqrt(3)  # the standard deviation is 0.02
    assert found.low == pytest.approx(0.72 - half)
    assert found.high == pytest.approx(0.72 + half)


def test_two_seeds_have_points_and_no_interval() -> None:
    found = estimate({0: 0.70, 1: 0.72})
    assert found.points == {0: 0.70, 1: 0.72}
    assert (found.low, found.high) == (None, None)


def test_a_gain_is_the_mean_of_the_differences_within_seeds() -> None:
    found = paired_difference({0: 0.70, 1: 0.80, 2: 0.75}, {0: 0.60, 1: 0.75, 2: 0.72})
    # differences 0.10, 0.05, 0.03: mean 0.06, sum of squares 0.0016 + 0.0001 + 0.0009
    half = T_2 * math.sqrt(0.0026 / 2 / 3)
    assert found.mean == pytest.approx(0.06)
    assert found.low == pytest.approx(0.06 - half)
    assert found.high == pytest.approx(0.06 + half)


def test_a_gain_uses_only_seeds_that_both_have() -> None:
    sweep = Sweep(["gspo_x2", "hacpo"], [0, 1])
    sweep.alone("gspo_x2", "a", {0: 0.50})
    sweep.cell("gspo_x2", "a", 1, state="queued")
    sweep.together("hacpo", {0: {"a": 0.60, "b": 0.0}, 1: {"a": 0.90, "b": 0.0}})
    gain = sweep.row("hacpo", "a").gain
    assert gain is not None
    assert gain.points == pytest.approx({0: 0.10})  # not (0.60 + 0.90) / 2 - 0.50
    assert "| hacpo | a | +10.0 | +10.0 | - |" in sweep.report().markdown()


def test_a_gain_compares_the_same_agent() -> None:
    sweep = Sweep(["gspo_x2", "hacpo"], [0])
    sweep.alone("gspo_x2", "a", {0: 0.50})
    sweep.alone("gspo_x2", "b", {0: 0.20})
    sweep.together("hacpo", {0: {"a": 0.60, "b": 0.60}})
    gains = {r.agent: r.gain.mean for r in sweep.report().rows if r.gain and r.method == "hacpo"}
    assert gains == pytest.approx({"a": 0.10, "b": 0.40, MEAN: 0.25})


def test_the_mean_over_agents_is_taken_within_seeds_that_all_agents_have() -> None:
    sweep = Sweep(["gspo"], [0, 1])
    sweep.alone("gspo", "a", {0: 0.6, 1: 0.8})
    sweep.alone("gspo", "b", {0: 0.4})
    sweep.cell("gspo", "b", 1, state="failed", error="out of memory")
    row = sweep.row("gspo", MEAN)
    assert row.after.points == pytest.approx({0: 0.5})
    assert "| gspo | mean over agents | 30.0 -> 50.0 | 1 of 2 |" in sweep.report().markdown()


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"state": "failed", "error": "disk full"}, "failed: disk full"),
        ({"state": "running", "steps_done": 12}, "running, step 12 of 60"),
        ({"state": "queued", "steps_done": 0}, "queued"),
    ],
)
def test_a_cell_that_is_not_done_is_listed_and_enters_no_mean(
    facts: dict[str, Any], reason: str
) -> None:
    sweep = Sweep(["hacpo"], [0, 1])
    sweep.together("hacpo", {0: {"a": 0.6, "b": 0.6}})
    unfinished = sweep.cell("hacpo", "a+b", 1, **facts)
    sweep.scores(unfinished, "a", 0.3, 0.0)
    assert sweep.row("hacpo", "a").after.points == {0: 0.6}
    assert sweep.row("hacpo", "a").seeds == 2
    assert sweep.report().missing == [f"hacpo a+b s1: {reason}"]
    assert f"- hacpo a+b s1: {reason}" in sweep.report().markdown()


def test_a_cell_that_was_never_registered_is_missing() -> None:
    sweep = Sweep(["hacpo"], [0])
    assert sweep.report().missing == ["hacpo a+b s0: not in the sweep"]


def test_an_ungraded_evaluation_is_missing_not_zero() -> None:
    sweep = Sweep(["gspo"], [0, 1], agents="a")
    sweep.alone("gspo", "a", {0: 0.6, 1: math.nan})
    assert sweep.row("gspo", "a").after.points == {0: 0.6}
    assert sweep.report().missing == ["gspo a s1: done, but a has no graded evaluation by avg@8"]


def test_only_the_last_step_is_after() -> None:
    sweep = Sweep(["gspo"], [0], agents="a")
    sweep.alone("gspo", "a", {0: 0.6})
    middle = replace(sweep.evaluations[-1], step=30, mean=0.9)
    sweep.evaluations.append(middle)
    assert sweep.row("gspo", "a").after.points == {0: 0.6}


def test_a_variant_with_other_steps_is_read_at_its_own_end() -> None:
    sweep = Sweep([], [0], agents="a")
    sweep.config["grid"]["variants"] = {"short": {"method": "gspo", "set": {"steps": 30}}}
    sweep.alone("short", "a", {0: 0.6})
    sweep.evaluations.append(replace(sweep.evaluations[-1], step=30, mean=0.5))
    assert sweep.row("short", "a").after.points == {0: 0.5}


def test_rollouts_are_those_of_the_agent_and_those_it_learned_from() -> None:
    sweep = Sweep(["hacpo"], [0, 1])
    sweep.together("hacpo", {0: {"a": 0.6, "b": 0.6}, 1: {"a": 0.6, "b": 0.6}})
    for cell in sweep.cells:
        sweep.cost(cell, "a", 3840, 7680)
        sweep.cost(cell, "b", 3836, 7680)
    row = sweep.row("hacpo", "b")
    assert (row.rollouts_generated, row.rollouts_consumed) == (3836, 7680)
    assert sweep.row("hacpo", MEAN).rollouts_generated == 3838
    assert "| 3,838 | 7,680 |" in sweep.report().markdown()


def test_an_untrained_row_has_one_seed_one_number_and_no_gain() -> None:
    sweep = Sweep(["initial", "gspo_x1"], [0, 1, 2], agents="a")
    cell = sweep.cell("initial", "a", 0)
    sweep.scores(cell, "a", 0.349, 0.9)  # nothing is measured after step 0, so 0.9 must not count
    row = sweep.row("initial", "a")
    assert (row.seeds, row.gain) == (1, None)
    assert "| initial | a | 34.9 | 1 of 1 | - | - |" in sweep.report().markdown()


def test_three_agents_are_compared_with_three_times_the_rollouts() -> None:
    sweep = Sweep(["gspo_xN", "hacpo"], [0], agents="abc")
    for agent in "abc":
        sweep.alone("gspo_x3", agent, {0: 0.5})
    sweep.together("hacpo", {0: {"a": 0.7, "b": 0.6, "c": 0.5}})
    gains = [r.gain.mean for r in sweep.report().rows if r.gain]
    assert gains == pytest.approx([0.2, 0.1, 0.0, 0.1])
    assert "gain over gspo_x3, points" in sweep.report().markdown()


def test_every_combination_has_tables_and_a_control_of_its_own() -> None:
    sweep = Sweep(["gspo_xN", "hacpo"], [0], agents="abc")
    sweep.config["grid"]["combinations"] = [["a", "b"], ["a", "b", "c"]]
    for agent in "abc":
        sweep.alone("gspo_x2", agent, {0: 0.4})
        sweep.alone("gspo_x3", agent, {0: 0.5})
    sweep.together("hacpo", {0: {"a": 0.7, "b": 0.6}})
    sweep.together("hacpo", {1: {"a": 0.0, "b": 0.0, "c": 0.0}})  # a seed that nobody asked for
    report = sweep.report()
    gains = {(r.combination, r.agent): r.gain.mean for r in report.rows if r.gain}
    assert gains["a+b", MEAN] == pytest.approx(0.25)
    assert gains["a+b+c", MEAN] is None
    assert report.missing == ["hacpo a+b+c s0: not in the sweep"]
    text = report.markdown()
    assert text.count("**a+b**\n\n| method | agent |") == 3  # accuracy, tests, cost
    assert "hacpo (a+b): no gain over gspo_x2 to tell" in text
    assert "gain over gspo_x3, points" in text


def test_without_the_control_nothing_is_compared_unless_another_method_is_named() -> None:
    sweep = Sweep(["gspo", "hacpo"], [0])
    sweep.alone("gspo", "a", {0: 0.5})
    sweep.alone("gspo", "b", {0: 0.5})
    sweep.together("hacpo", {0: {"a": 0.6, "b": 0.7}})
    assert sweep.report().comparisons == []
    assert "gain" not in sweep.report().markdown().lower()
    named = sweep.report(against="gspo").comparisons
    assert [(c.agent, c.by_seed) for c in named] == [
        ("a", pytest.approx({0: 0.1})),
        ("b", pytest.approx({0: 0.2})),
        (MEAN, pytest.approx({0: 0.15})),
    ]
    with pytest.raises(ConfigError, match="no method 'grpo'; it has gspo, hacpo"):
        sweep.report(against="grpo")


def test_agents_of_a_shared_cell_are_found_by_their_model() -> None:
    """Another sweep began the joint cell and called this sweep's a `b` and its b `a`."""
    sweep = Sweep(["gspo", "hacpo"], [0])
    sweep.alone("gspo", "a", {0: 0.5})
    sweep.alone("gspo", "b", {0: 0.5})
    cell = sweep.cell("hacpo", "a+b", 0)
    a, b = cell.agents["a"], cell.agents["b"]
    crossed = {"a": replace(b, agent="a"), "b": replace(a, agent="b")}
    sweep.cells[-1] = replace(cell, agents=crossed)
    sweep.scores(cell, "a", 0.3, 0.1)
    sweep.scores(cell, "b", 0.3, 0.9)
    assert sweep.row("hacpo", "a").after.points == {0: 0.9}
    assert sweep.row("hacpo", "b").after.points == {0: 0.1}


def test_avg_at_k_is_the_default_protocol_and_greedy_is_there_too() -> None:
    sweep = Sweep(["gspo"], [0], agents="a")
    sweep.alone("gspo", "a", {0: 0.6})
    sweep.scores(sweep.cells[0], "a", 0.2, 0.7, protocol="greedy")
    assert (sweep.report().protocol, sweep.report("greedy").protocol) == ("avg@8", "greedy")
    assert sweep.report("greedy").rows[0].after.points == {0: 0.7}
    with pytest.raises(ConfigError, match=r"avg@16.*it has avg@8, greedy"):
        sweep.report("avg@16")


def test_markdown_reads_as_committed() -> None:
    sweep = Sweep(["gspo_x2", "hacpo"], [0, 1, 2])
    sweep.alone("gspo_x2", "a", {0: 0.60, 1: 0.75, 2: 0.72})
    sweep.alone("gspo_x2", "b", {0: 0.50, 1: 0.50, 2: 0.50})
    hacpo = {0: 0.70, 1: 0.80, 2: 0.75}
    sweep.together("hacpo", {seed: {"a": value, "b": 0.5} for seed, value in hacpo.items()})
    # a: gspo_x2 mean 0.69, sd 0.0794; hacpo 0.75, sd 0.05.
    # The means over agents are half of a's plus 0.25, so their intervals are half as wide.
    accuracy = sweep.report().markdown().split("\n\n")[2:5]
    assert "\n\n".join(accuracy) == (
        "### Accuracy\n"
        "\n"
        "| method | agent | held-out accuracy, % (avg@8) | seeds | rollouts sampled "
        "| rollouts consumed |\n"
        "| --- | --- | ---: | ---: | ---: | ---: |\n"
        "| gspo_x2 | a | 30.0 -> 69.0 [49.3, 88.7] | 3 of 3 | - | - |\n"
        "| gspo_x2 | b | 30.0 -> 50.0 [50.0, 50.0] | 3 of 3 | - | - |\n"
        "| gspo_x2 | mean over agents | 30.0 -> 59.5 [49.6, 69.4] | 3 of 3 | - | - |\n"
        "| hacpo | a | 30.0 -> 75.0 [62.6, 87.4] | 3 of 3 | - | - |\n"
        "| hacpo | b | 30.0 -> 50.0 [50.0, 50.0] | 3 of 3 | - | - |\n"
        "| hacpo | mean over agents | 30.0 -> 62.5 [56.3, 68.7] | 3 of 3 | - | - |\n"
        "\n"
        "Accuracy: mean [95% t interval] over seeds. Rollouts: per agent and seed, "
        "sampled by itself and consumed by its training (its own and, under sharing, the others')."
    )


def test_the_widest_table_fits_120_columns_with_every_value_in_one_piece() -> None:
    sweep = Sweep(["gspo_x2"], [0, 1, 2])
    sweep.config["grid"]["variants"] = {"hacpo_no_capability": {"method": "hacpo", "set": {"x": 1}}}
    for agent in "ab":
        sweep.alone("gspo_x2", agent, {0: 0.50, 1: 0.55, 2: 0.60})
    values = {0: 0.60, 1: 0.50, 2: 0.55}
    sweep.together("hacpo_no_capability", {s: {"a": v, "b": v} for s, v in values.items()})
    for cell in sweep.cells:
        for agent in cell.combination.split("+"):
            sweep.cost(cell, agent, 1_187_840, 2_375_680)
    report = sweep.report()
    out = io.StringIO()
    Console(file=out, width=120).print(report.rich_table())
    lines = out.getvalue().split("\n")
    assert max(map(len, lines)) <= 120
    rows = "".join(line for line in lines if "hacpo_no_capability" in line)
    # differences 0.10, -0.05, -0.05
    for value in ("30.0 -> 55.0 [42.6, 67.4]", "1,187,840", "2,375,680", "+10.0, -5.0, -5.0"):
        assert value in rows


def test_several_benchmarks_have_a_column_each_and_an_average_of_whole_runs() -> None:
    sweep = Sweep(["gspo"], [0, 1], agents="a")
    sweep.alone("gspo", "a", {0: 0.6, 1: 0.8})
    sweep.scores(sweep.cells[0], "a", 0.1, 0.2, protocol="greedy", task="aime")
    found = {row.task: row.after.points for row in sweep.report().rows}
    assert found["held_out"] == {0: 0.6, 1: 0.8}
    assert found["aime"] == {0: 0.2}
    assert found["average"] == pytest.approx({0: 0.4})  # never of seed 1, which lacks aime
    text = sweep.report().markdown()
    assert "| method | agent | held out | aime | average | seeds |" in text
    assert "| initial | a | 30.0 | 10.0 | 20.0 |  |" in text
    assert "| gspo | a | 60.0, 80.0 | 20.0 | 40.0 | 1 of 2 |" in text
    assert "- gspo a s1: done, but a has no graded evaluation on aime by greedy" in text


def test_csv_has_every_raw_point_of_every_protocol() -> None:
    sweep = Sweep(["gspo"], [0, 1], agents="a")
    sweep.alone("gspo", "a", {0: 0.6})
    sweep.scores(sweep.cells[0], "a", 0.25, 0.75, protocol="greedy")
    sweep.cell("gspo", "a", 1, state="queued")
    rows = list(csv.DictReader(io.StringIO(sweep.report().csv())))
    assert [(r["seed"], r["protocol"], r["before"], r["after"], r["state"]) for r in rows] == [
        ("0", "avg@8", "0.3", "0.6", "done"),
        ("0", "greedy", "0.25", "0.75", "done"),
        ("1", "avg@8", "", "", "queued"),
        ("1", "greedy", "", "", "queued"),
    ]


def test_json_is_plain_data() -> None:
    sweep = Sweep(["gspo_x1"], [0], agents="a")
    sweep.alone("gspo_x1", "a", {0: 0.6})
    text = json.dumps(sweep.report().to_json(), allow_nan=False)
    (row,) = json.loads(text)["rows"]
    assert row["after"] == {"points": {"0": 0.6}, "mean": 0.6, "low": None, "high": None}


def test_single_trainings_are_not_averaged() -> None:
    sweep = Sweep([], [])
    sweep.alone("gspo", "a", {0: 0.5, 1: 0.7})
    facts = Facts(sweep.evaluations, sweep.costs, {})
    report = build_report("runs", wanted_by_cells(sweep.cells), facts, {"held_out": {"avg@8"}})
    assert [(r.method, r.after.points) for r in report.rows] == [
        ("gspo s0", {0: 0.5}),
        ("gspo s1", {1: 0.7}),
    ]


@pytest.mark.parametrize("path", [p for p in CONFIGS if "grid:" in p.read_text()], ids=str)
def test_the_table_finds_every_cell_of_a_committed_grid(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    grid = load_grid(path)
    sweep = Sweep([], [])
    specs = expand(grid, tmp_path, ExpectedInputs(tmp_path))
    for spec in specs:
        sweep.cell(spec.method, spec.combination, spec.seed)
    wanted = wanted_by_grid(grid.model_dump(mode="json"), sweep.cells)
    found = {cell.label for row in wanted for cell in row.cells.values() if cell is not None}
    assert all(cell is not None for row in wanted for cell in row.cells.values())
    assert found == {spec.label for spec in specs}


GRID: dict[str, Any] = {
    "name": "small",
    "agents": {"a": {"model": "embedded:a"}, "b": {"model": "embedded:b"}},
    "problems": {"train": "embedded:train", "held_out": "embedded:held_out"},
    "steps": 3,
    "evaluate": {"samples": 2, "greedy": False},
    "grid": {"combinations": [["b", "a"]], "methods": ["gspo_x2", "hacpo"], "seeds": [0]},
}


def finish(registry: Registry, spec: CellSpec, after: dict[str, float]) -> None:
    """Record a cell's results as a worker does."""
    claim = registry.claim("test", cell_key=spec.key, lease_seconds=60, host="h", pid=1)
    assert claim is not None
    for agent, mean in after.items():
        for step, value in ((0, 0.25), (3, mean)):
            evaluation = Evaluation(
                agent=agent,
                step=step,
                task="held_out",
                protocol="avg@2",
                mean=value,
                problems=[ProblemScore(problem_id="p", scores=[value, value])],
                counts={"correct": 1},
            )
            registry.record_evaluation(claim, evaluation)
        registry.record_cost(
            claim,
            agent,
            rollouts_generated=6,
            rollouts_consumed=12,
            tokens=60,
            device_seconds=1.0,
        )
    registry.finish(claim)


def test_a_report_reads_the_registry(tmp_path: Path) -> None:
    config = GridConfig.model_validate(GRID)
    cells = expand(config, tmp_path)
    with Registry.open(f"sqlite:///{tmp_path}/registry.db") as registry:
        data = config.model_dump(mode="json")
        registry.register_sweep("small", owner="me", config=data, cells=cells)
        by_label = {spec.label: spec for spec in cells}
        finish(registry, by_label["gspo_x2 a s0"], {"a": 0.5})
        finish(registry, by_label["hacpo a+b s0"], {"a": 0.75, "b": 0.5})
        report = sweep_report(registry, "small")
    rows = {(row.method, row.agent): row for row in report.rows}
    hacpo = rows["hacpo", "a"]
    assert (report.protocol, hacpo.combination) == ("avg@2", "b+a")  # in the order of the file
    assert (hacpo.before.mean, hacpo.after.mean) == (0.25, 0.75)
    assert hacpo.gain is not None
    assert hacpo.gain.points == {0: 0.25}
    assert (hacpo.rollouts_generated, hacpo.rollouts_consumed) == (6, 12)
    assert rows["hacpo", MEAN].gain == estimate({})  # gspo_x2 of b is not there
    assert report.missing == ["gspo_x2 b s0: queued"]
