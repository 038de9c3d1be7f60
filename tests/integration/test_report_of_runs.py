"""A report of real trainings: the ledger's own metrics, counted as the registry counts."""

from pathlib import Path

import pytest

import hacpo
from hacpo.places import default_registry_url
from hacpo.registry import Registry
from hacpo.report import sweep_report
from hacpo.report.publish import html_page
from tests.cli_runner import isolated_home
from tests.tiny import tiny_pair


def test_files_and_registry_of_a_training_count_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolated_home(tmp_path, monkeypatch)
    hacpo.train(tiny_pair(tmp_path))
    with Registry.open(default_registry_url()) as registry:
        report = sweep_report(registry, "runs")
        text = html_page(registry, report)
    assert len(report.diagnostics.counted) == 2
    for point in report.shown:
        counted = report.diagnostics.counted[point.cell_key, point.member]
        # 2 steps of 4 problems x 4 responses; both agents' are consumed
        assert (counted.rollouts_generated, counted.rollouts_consumed) == (32, 64)
        assert counted.rollouts_generated == point.rollouts_generated
        assert counted.rollouts_consumed == point.rollouts_consumed
        assert counted.tokens_generated == point.tokens_generated
        assert point.tokens_consumed == sum(other.tokens_generated or 0 for other in report.shown)
    assert [one.agent for one in report.diagnostics.inside] == ["a", "b"]
    for one in report.diagnostics.inside:
        assert one.self_ratio is not None
        assert one.self_ratio.mean == pytest.approx(1, abs=0.05)
        (source,) = one.sources
        assert source.share == 0.5
        assert source.identical == 1.0
        assert source.only_source_solved is not None
        assert set(one.clips) >= {"clip/self_low", "clip/cross_floor"}
    assert 'id="sources"' in text
    assert 'id="curves"' in text
