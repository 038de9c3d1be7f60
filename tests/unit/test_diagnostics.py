"""Ratios, clips and who learned from whom: read from real files, every number by hand."""

import math
import shutil
from pathlib import Path

import pytest

from hacpo.report.asked import wanted_by_grid
from hacpo.report.cost import Counted
from hacpo.report.diagnostics import Diagnostics, diagnose
from tests.recorded_files import record_step
from tests.sweep_rows import Sweep

NAN = math.nan


def ratios(low: float, mean: float, high: float, cross: float) -> dict[str, float]:
    return {
        "ratio/self_min": low,
        "ratio/self_mean": mean,
        "ratio/self_max": high,
        "ratio/cross_mean": cross,
        "ratio/cross_mean/b": cross,
        "clip/cross_floor": cross / 10,
    }


def joint(folder: Path) -> Sweep:
    """One cell of hacpo with two steps."""
    sweep = Sweep(["hacpo"], [0])
    sweep.together("hacpo", {0: {"a": 0.5, "b": 0.5}})
    run = folder / sweep.cells[0].key
    record_step(
        run,
        0,
        {"a": ratios(0.99, 1.0, 1.01, 0.8), "b": {}},
        {
            "a": {"p": [0.0, 0.0], "q": [0.0, 1.0]},
            "b": {"p": [0.0, 1.0], "q": [1.0, 1.0]},
        },
        capability={"a": 0.25, "b": 0.75},
    )
    record_step(
        run,
        1,
        {"a": ratios(0.98, 1.002, 1.005, 0.9), "b": {}},
        {"a": {"p": [NAN, NAN], "r": [0.0, 0.0]}, "b": {"p": [1.0, 1.0], "r": [0.0, 0.0]}},
        capability={"a": 0.5, "b": 0.5},
    )
    return sweep


def read(sweep: Sweep, folder: Path) -> Diagnostics:
    wanted = wanted_by_grid(sweep.config, sweep.cells)
    return diagnose(wanted, {}, folder_of=lambda key: folder / key)


def test_ratios_and_clips_are_over_the_steps(tmp_path: Path) -> None:
    found = read(joint(tmp_path), tmp_path)
    (a, _) = found.inside
    assert (a.method, a.agent, a.seeds, a.steps) == ("hacpo", "a", 1, 2)
    assert a.self_ratio is not None
    assert a.cross_ratio is not None
    assert (a.self_ratio.mean, a.self_ratio.spread) == pytest.approx((1.001, 0.002))
    assert (a.self_ratio.low, a.self_ratio.high) == (0.98, 1.01)
    assert (a.cross_ratio.mean, a.cross_ratio.spread) == pytest.approx((0.85, 0.1))
    assert (a.cross_ratio.low, a.cross_ratio.high) == (None, None)
    assert a.clips == {"clip/cross_floor": pytest.approx(0.085)}


def test_who_learned_from_whom(tmp_path: Path) -> None:
    (a, b) = read(joint(tmp_path), tmp_path).inside
    (from_b,), (from_a,) = a.sources, b.sources
    assert (from_b.source, from_b.share) == ("b", 0.5)
    # of p, q and r under a's graded problems (its second p is ungraded), b alone solved p
    assert from_b.only_source_solved == pytest.approx(1 / 3)
    assert from_a.only_source_solved == 0
    assert from_b.ratio == pytest.approx(0.85)
    assert from_b.capability == pytest.approx((3 + 1) / 2)
    assert from_a.ratio is None


def test_what_an_agent_sampled_is_counted_from_its_files(tmp_path: Path) -> None:
    sweep = joint(tmp_path)
    counted = read(sweep, tmp_path).counted
    assert counted[sweep.cells[0].key, "a"] == Counted(
        rollouts_generated=8, rollouts_consumed=16, tokens_generated=80
    )


def test_without_rollouts_the_rest_is_still_told(tmp_path: Path) -> None:
    sweep = joint(tmp_path)
    for file in tmp_path.rglob("rollout.*"):
        file.unlink()
    (a, _) = read(sweep, tmp_path).inside
    assert a.sources[0].only_source_solved is None
    assert a.sources[0].ratio == pytest.approx(0.85)


def test_files_that_are_elsewhere_or_damaged_are_named(tmp_path: Path) -> None:
    sweep = joint(tmp_path)
    folder = tmp_path / sweep.cells[0].key
    (folder / "steps" / "000001" / "metrics.json").write_text("{")
    found = read(sweep, tmp_path)
    assert found.inside == []
    ((reason, cells),) = found.absent.items()
    assert "damaged" in reason
    assert cells == ["hacpo a+b s0"]
    shutil.rmtree(folder)
    assert read(sweep, tmp_path).absent == {"no files on this machine": ["hacpo a+b s0"]}
    assert not folder.exists()  # looking creates nothing


def test_cells_that_have_not_begun_are_not_looked_for(tmp_path: Path) -> None:
    sweep = Sweep(["gspo"], [0], agents="a")
    sweep.cell("gspo", "a", 0, state="queued", steps_done=0)
    assert read(sweep, tmp_path) == Diagnostics()
