"""The report as a page and as LaTeX: complete, safe, self-contained, and drawn by a browser."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hacpo.places import run_folder, run_id_of
from hacpo.registry import Registry
from hacpo.report import Report, sweep_report
from hacpo.report.curves import Curve
from hacpo.report.latex import escaped
from hacpo.report.page import page
from tests.recorded_files import record_step
from tests.recorded_sweep import record_sweep

EVIL = '<script>alert("x")</script>&'
SECTIONS = [
    "headline",
    "accuracy",
    "tests",
    "power",
    "curves",
    "cost",
    "paper",
    "ratios",
    "clips",
    "sources",
    "missing",
    "unread",
]


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("HACPO_HOME", str(tmp_path))
    with Registry.open(f"sqlite:///{tmp_path}/registry.db") as opened:
        yield opened


def scorer(method: str, agent: str, seed: int, task: str, step: int) -> list[list[float]]:
    return [[float((i + seed) % 3 == 0 or (method == "hacpo" and i % 4 == 0))] for i in range(24)]


@pytest.fixture
def report(registry: Registry) -> Report:
    """A sweep with a joint cell whose files are here, one that is missing, and the rest."""
    specs = record_sweep(
        registry,
        scorer,
        models={"a": "m_a", "b": "m_b"},
        methods=["gspo_x2", "hacpo"],
        seeds=[0, 1],
        tasks={"held_out": "greedy"},
        unfinished=["gspo_x2 b s1"],
    )
    (joint,) = [spec for spec in specs if spec.label == "hacpo a+b s0"]
    metrics = {"ratio/self_mean": 1.0, "ratio/cross_mean": 0.9, "clip/self_low": 0.25}
    for step in range(3):
        rewards = {agent: {"p": [0.0, 1.0]} for agent in "ab"}
        folder = run_folder(run_id_of(joint.key))
        record_step(folder, step, dict.fromkeys("ab", metrics), rewards)
    return sweep_report(registry, "recorded")


CURVES = [
    Curve(combination="a+b", agent=agent, method=method, rewards={0: [0.1, 0.5], 1: [0.2, 0.6]})
    for agent in "ab"
    for method in ("gspo_x2", "hacpo")
]


class Outline(HTMLParser):
    """Tags that are open, and what the page would load."""

    VOID = frozenset(("meta", "br", "link", "img"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sections: list[str] = []
        self.loaded: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
                self.sections += [value] if tag == "section" else []
            if name in ("src", "href", "xlink:href", "action", "data") and value:
                self.loaded.append(value)
            assert not name.startswith("on"), name

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()


def test_the_page_has_every_section_and_loads_nothing(report: Report) -> None:
    text = page(report, CURVES, "Made in a test.")
    outline = Outline(text)
    assert outline.open == []
    assert outline.sections == SECTIONS
    assert {link for link in outline.loaded if not link.startswith("#")} == set()
    assert {link[1:] for link in outline.loaded} <= set(outline.ids)
    assert len(outline.ids) == len(set(outline.ids))
    assert "<script" not in text
    assert not re.search(r"url\((?!#)|@import", text)
    assert text.count("<svg") == 2
    assert "gspo_x2 b s1: queued" in text
    assert "no files on this machine (it ran on h): gspo_x2 a s0" in text


def test_all_names_are_text(registry: Registry) -> None:
    record_sweep(
        registry,
        scorer,
        models={EVIL: "m"},
        methods=["gspo_x1", "gspo"],
        seeds=[0],
        tasks={EVIL + "task": "greedy"},
        name=EVIL,
    )
    found = sweep_report(registry, EVIL)
    curves = [Curve(combination=EVIL, agent=EVIL, method=EVIL, rewards={0: [0.1, 0.2]})]
    text = page(found, curves, EVIL)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert Outline(text).open == []
    assert "<script" not in found.markdown()


def test_an_unfinished_sweep_has_a_page_that_says_what_is_missing(registry: Registry) -> None:
    record_sweep(
        registry,
        scorer,
        models={"a": "m"},
        methods=["gspo"],
        seeds=[0],
        tasks={},
        unfinished=["gspo a s0"],
    )
    text = page(sweep_report(registry, "recorded"), [])
    assert "gspo a s0: queued" in text
    assert Outline(text).sections == ["accuracy", "paper", "missing"]


def test_latex_prints_names_and_has_as_many_cells_in_every_row(report: Report) -> None:
    text = report.latex()
    assert r"gspo\_x2" in text
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 7
    for body in re.findall(r"\\begin\{tabular\}\{(l+r+)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        columns, rows = body
        cells = [row.count(" & ") + 1 for row in rows.split("\n") if row.endswith(r"\\")]
        assert set(cells) == {len(columns)}
    bare = [line for line in text.split("\n") if re.search(r"(?<!\\)[_#]|(?<!\\)%(?!\s)", line)]
    assert [line for line in bare if not line.startswith("%")] == []


def test_what_latex_would_read_as_commands_is_escaped() -> None:
    assert escaped("a_b & 5% {x} $y$ #1 ~ ^ \\z") == (
        r"a\_b \& 5\% \{x\} \$y\$ \#1 \textasciitilde{} \textasciicircum{} \textbackslash{}z"
    )
    assert escaped("30.0 -> 50.0 ±1") == r"30.0 $\rightarrow$ 50.0 $\pm$1"
    assert escaped("-3.5 [-6.7, +1] in 2026-11-30, p-value") == (
        "$-$3.5 [$-$6.7, +1] in 2026-11-30, p-value"
    )


def test_latex_compiles(report: Report, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex: apt-get install texlive-latex-recommended")
    body = rf"\begin{{document}}{report.latex()}\end{{document}}"
    packages = r"\usepackage{booktabs}\usepackage[landscape,margin=1cm]{geometry}"
    (tmp_path / "report.tex").write_text(rf"\documentclass{{article}}{packages}{body}")
    compile_it = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    done = subprocess.run(compile_it, cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-800:]
    assert (tmp_path / "report.pdf").stat().st_size > 1000


@pytest.mark.browser
def test_a_browser_draws_the_page(report: Report, tmp_path: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    file, shot = tmp_path / "report.html", tmp_path / "report.png"
    file.write_text(page(report, CURVES), encoding="utf-8")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    common = [*command, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1200,2400"]
    dom = subprocess.run(
        [*common, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120
    )
    assert dom.returncode == 0, dom.stderr
    assert [f'id="{name}"' in dom.stdout for name in SECTIONS] == [True] * len(SECTIONS)
    subprocess.run(
        [*common, f"--screenshot={shot}", file.as_uri()],
        capture_output=True,
        timeout=120,
        check=True,
    )
    from matplotlib.image import imread

    pixels = imread(shot)[:, :, :3]
    assert pixels.shape[:2] == (2400, 1200)
    ink = (pixels < 0.5).any(axis=2)
    assert 0.01 < ink.mean() < 0.3  # neither blank nor black
    assert not ink[:, 1190:].any()  # nothing runs over the right margin
    blue = abs(pixels - [0, 0x72 / 255, 0xB2 / 255]).max(axis=2) < 0.02
    assert blue.sum() > 200  # the figures' first colour
