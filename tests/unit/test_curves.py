"""Training curves: what is drawn is what the registry holds."""

from pathlib import Path

import pytest

from hacpo.errors import ConfigError
from hacpo.report.curves import Curve, draw_curves, smoothed


def test_smoothing_is_the_mean_of_the_last_five_steps() -> None:
    # 0; (0+1)/2; (0+1+2)/3; ...; (1+2+3+4+5)/5
    assert smoothed([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]) == [0.0, 0.5, 1.0, 1.5, 2.0, 3.0]


def curve(agent: str, method: str, *seeds: list[float]) -> Curve:
    rewards = dict(enumerate(seeds))
    return Curve(combination="a+b", agent=agent, method=method, rewards=rewards)


def test_a_figure_has_a_panel_for_each_agent_and_a_line_for_each_method(tmp_path: Path) -> None:
    path = tmp_path / "curves.svg"
    curves = [
        curve("a", "gspo", [0.1, 0.2], [0.2, 0.4]),
        curve("b", "gspo", [0.1, 0.2], [0.2, 0.4]),
        curve("a", "hacpo", [0.3, 0.5]),
        curve("b", "hacpo", [0.3, 0.5]),
    ]
    draw_curves(curves, path)
    text = path.read_text()
    for label in ("agent a", "agent b", "gspo (2 seeds)", "hacpo", "step"):
        assert f"<!-- {label} -->" in text


def test_an_unknown_kind_of_figure_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.svg, \.png or \.pdf"):
        draw_curves([curve("a", "gspo", [0.1])], tmp_path / "curves.docx")
