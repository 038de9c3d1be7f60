"""The paper's numbers: all of them there, and found for the sweeps that ask the same."""

from pathlib import Path

import pytest

from hacpo.registry import Registry
from hacpo.report import sweep_report
from hacpo.report.paper import BENCHMARKS, best_of, paper_benchmark, paper_row, paper_rows
from tests.recorded_sweep import record_sweep

SMALL, BIG = "Qwen/Qwen3-1.7B-Base", "org/models/Qwen3-4B-Base"


def test_all_tables_are_there() -> None:
    tables = [row.table for row in paper_rows()]
    assert {table: tables.count(table) for table in "1237"} == {"1": 36, "2": 4, "3": 2, "7": 36}


def test_ten_printed_averages_do_not_match_their_rows() -> None:
    wrong = [row for row in paper_rows() if row.table in "17" and not row.average_matches]
    assert len(wrong) == 10
    assert ("Qwen3-4B-Instruct", "hacpo", 0.813) in [
        (r.model, r.method, r.published) for r in wrong
    ]
    # 0.948 0.943 0.946 0.757 0.95 0.452 0.732: sum 5.728
    assert next(r for r in wrong if r.published == 0.813).average == pytest.approx(5.728 / 7)


def test_a_line_is_found_by_model_combination_and_method() -> None:
    row = paper_row([BIG, SMALL], SMALL, "hacpo")
    assert row is not None
    assert row.values["math500"] == 0.69
    ablation = paper_row([BIG, SMALL], SMALL, "hacpo_no_capability_advantage")
    assert ablation is not None
    assert ablation.table == "2"
    assert paper_row([SMALL], SMALL, "hacpo") is None  # alone it is not the paper's pair
    assert paper_row([BIG, "other"], BIG, "hacpo") is None
    assert paper_row(["Qwen/Qwen3-4B", "Qwen/Qwen3-4B-Instruct-2507"], "Qwen/Qwen3-4B", "grpo")


@pytest.mark.parametrize(
    ("task", "column"),
    [
        ("math500", "math500"),
        ("MATH-500", "math500"),
        ("aime25", "aime25_best30"),
        ("hacpo_aime25_best30", "aime25_best30"),
        ("olympiad_bench", "olympiad"),
        ("aime24", ""),
        ("held_out", ""),
    ],
)
def test_benchmarks_are_known_by_their_usual_names(task: str, column: str) -> None:
    assert paper_benchmark(task) == column


def test_best_of_30_counts_as_verl_does() -> None:
    assert best_of({"p": 1 / 30}, 30) == pytest.approx(0.638, abs=0.001)
    assert best_of({"p": 0.0, "q": 1.0}, 30) == 0.5


def test_a_sweep_of_the_papers_pair_is_shown_beside_it(tmp_path: Path) -> None:
    tasks = dict.fromkeys(("math500", "math", "gsm8k", "amc23", "minerva", "olympiad"), "greedy")
    tasks["aime25"] = "avg@30"

    def scorer(method: str, agent: str, seed: int, task: str, step: int) -> list[list[float]]:
        return [[1.0] * 3 + [0.0] * 27] if task == "aime25" else [[1.0], [0.0]]

    with Registry.open(f"sqlite:///{tmp_path}/registry.db") as registry:
        models = {"small": SMALL, "big": BIG}
        grid = {"models": models, "methods": ["gspo", "gspo_x2", "hacpo"], "seeds": [0]}
        record_sweep(registry, scorer, tasks=tasks, **grid)
        found = sweep_report(registry, "recorded")
    one = next(b for b in found.beside if (b.method, b.agent) == ("gspo_x2", "small"))
    best = 1 - 0.9**30
    assert one.ours == {b: best if b == "aime25_best30" else 0.5 for b in BENCHMARKS}
    assert one.average == pytest.approx((6 * 0.5 + best) / 7)
    text = found.markdown()
    assert "| gspo_x2 | small | 50.0 / 66.4 | 50.0 / 65.0 |" in text
    assert "Qwen3-1.7B-Base, gspo_x2: the printed average 47.5 is not that of its row, 46.5" in text
    assert "| initial | small | 50.0 / 50.0 |" in text
    before = next(b for b in found.beside if (b.method, b.agent) == ("initial", "small"))
    assert before.average is None  # best@30 before training is not known, so neither is the average


def test_a_sweep_that_the_paper_does_not_have_is_not_compared_with_it(tmp_path: Path) -> None:
    with Registry.open(f"sqlite:///{tmp_path}/registry.db") as registry:
        models = {"a": SMALL, "b": "somebody/else"}
        tasks = {"math500": "greedy"}
        grid = {"models": models, "methods": ["hacpo"], "seeds": [0], "tasks": tasks}
        record_sweep(registry, lambda *_: [[1.0]], **grid)
        found = sweep_report(registry, "recorded")
    assert found.beside == []
    assert "No combination of this sweep is in the paper" in found.markdown()
