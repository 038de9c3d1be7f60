"""Training curves: what is drawn is what the registry holds."""

import math
import re
from pathlib import Path

import pytest

from hacpo.errors import ConfigError
from hacpo.report.curves import Curve, curves_figure, draw_curves, smoothed
from hacpo.report.figure import inline, style


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
        assert f">{label}</text>" in text


def test_an_unknown_kind_of_figure_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.svg, \.png or \.pdf"):
        draw_curves([curve("a", "gspo", [0.1])], tmp_path / "curves.docx")


def test_steps_without_grades_are_left_out_of_the_mean() -> None:
    nan = math.nan
    assert smoothed([0.2, nan, 0.4]) == pytest.approx([0.2, 0.2, 0.3])
    assert math.isnan(smoothed([nan, 0.5])[0])


def test_a_band_reaches_from_the_lowest_to_the_highest_seed() -> None:
    figure = curves_figure([curve("a", "gspo", [0.1, 0.3], [0.3, 0.5], [0.2, 0.7])])
    (axis,) = figure.axes
    (line,) = axis.lines
    assert list(line.get_ydata()) == pytest.approx([0.2, 0.35])  # 0.1 0.3 0.2; 0.2 0.4 0.45
    (band,) = axis.collections
    points = {tuple(point) for point in band.get_paths()[0].vertices.round(6)}
    assert {(1, 0.1), (1, 0.3), (2, 0.2), (2, 0.45)} <= points


def test_no_two_of_49_methods_look_alike() -> None:
    looks = [str(style(position)) for position in range(49)]
    assert len(set(looks)) == 49


@pytest.mark.parametrize("agents", [["a"], ["a", "b"]])
def test_many_methods_are_shown_in_blocks_whose_legends_are_whole(agents: list[str]) -> None:
    methods = ["gspo", "hacpo", *(f"hacpo_without_part_{n}" for n in range(11))]
    figure = curves_figure([curve(a, method, [0.1, 0.2]) for a in agents for method in methods])
    figure.canvas.draw()
    legends = [legend for block in figure.subfigs for legend in block.legends]
    shown = [[text.get_text() for text in legend.get_texts()] for legend in legends]
    assert shown == [methods[:5], ["hacpo", *methods[5:10]], ["hacpo", *methods[10:]]]
    for legend in legends:
        left, bottom, right, top = legend.get_window_extent().extents
        assert left >= 0
        assert bottom >= 0
        assert right <= figure.bbox.width
        assert top <= figure.bbox.height
    heights = [axis.get_window_extent().height for axis in figure.axes]
    assert min(heights) > 100


def test_names_are_drawn_as_they_are_and_equal_data_gives_equal_files(tmp_path: Path) -> None:
    curves = [curve("a", r"m$x_1$", [0.1, 0.2])]
    for name in ("one.svg", "two.svg"):
        draw_curves(curves, tmp_path / name)
    assert "m$x_1$" in (tmp_path / "one.svg").read_text()
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_figure_in_a_page_has_ids_of_its_own() -> None:
    svg = inline(curves_figure([curve("a", "gspo", [0.1, 0.2])]), "rewards", "words")
    ids = set(re.findall(r'\bid="([^"]+)"', svg))
    assert ids
    assert all(name.startswith("rewards-") for name in ids)
    assert set(re.findall(r'(?:url\(|href=")#([^")]+)', svg)) <= ids
