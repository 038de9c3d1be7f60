"""The catalogue, its files, and what `hacpo data` says and gets."""

import json
import shutil
from pathlib import Path
from typing import Any, get_args

import datasets
import pytest

from hacpo.benchmarks.catalogue import BENCHMARKS, PAPER, SETS, benchmark
from hacpo.benchmarks.check import check_data
from hacpo.benchmarks.damage import control_characters, damaged, repaired
from hacpo.benchmarks.fetch import fetch
from hacpo.benchmarks.files import read_set
from hacpo.errors import ConfigError, DataError
from hacpo.places import data_folder
from hacpo.problems import load_problems
from hacpo.task_settings import BenchmarkName
from tests.benchmark_data import REAL, SMALL, needs_real, write_problems
from tests.cli_runner import Cli

COUNTS = {
    "math500": 500,
    "math": 5000,
    "gsm8k": 1319,
    "aime24": 30,
    "amc23": 40,
    "minerva": 272,
    "olympiad": 675,
    "math_train": 7470,
    "gsm8k_train": 7473,
}


def test_a_config_takes_exactly_the_benchmarks_that_there_are():
    assert set(get_args(BenchmarkName)) == set(BENCHMARKS)
    assert len(PAPER) == 7
    assert set(BENCHMARKS) - set(PAPER) == {"aime24"}
    assert {name for name in PAPER if BENCHMARKS[name].samples == 30} == {"aime25"}


def test_olympiadbench_has_a_count_for_each_source():
    assert {s.count for s in SETS["olympiad"].sources} == {672, 674, 675}


def test_an_unknown_benchmark_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="unknown benchmark 'aime': choose from math500, math, "):
        benchmark("aime")
    with pytest.raises(ConfigError, match="unknown benchmark 'gsm8k_train'"):
        benchmark("gsm8k_train")


@needs_real
def test_the_real_files_are_as_the_catalogue_says():
    report = check_data(REAL)
    assert report.is_usable
    found = {each.name: each for each in report.sets}
    assert {name: found[name].count for name in COUNTS} == COUNTS
    assert {found[name].verdict for name in COUNTS} == {"known"}
    assert found["aime25"].verdict == "missing"
    assert {name: found[name].control_characters for name in ("math500", "math")} == {
        "math500": 2,
        "math": 13,
    }
    assert found["math500"].damaged == found["math"].damaged == []
    assert found["math_train"].damaged == [r"math_train-5317: \textbf"]
    assert found["math_train"].duplicates == ["math_train-956"]
    (overlap,) = report.overlaps
    assert (overlap.train, overlap.benchmark) == ("math_train", "math")
    assert overlap.pairs == [("math_train-2937", "math_test-4656")]


def test_a_file_of_another_size_is_not_what_its_name_says(cli: Cli):
    done = cli("data", "check", str(SMALL))
    assert done.code == 2
    assert "3 problems; expected 674 (hub), 675 (the copy" in " ".join(done.out.split())
    assert "not what the name says: math500, math, gsm8k, aime24, amc23," in done.err
    assert len(done.err.splitlines()) == 1


def test_the_same_count_with_other_content_is_told_apart(tmp_path: Path):
    write_problems(tmp_path / "amc23.jsonl", [(f"What is ${i}$?", f"{i}") for i in range(40)])
    found = {each.name: each for each in check_data(tmp_path).sets}
    assert found["amc23"].verdict == "count"
    assert "other content than was seen" in found["amc23"].says


def test_damage_repeats_and_overlap_are_found(tmp_path: Path, cli: Cli):
    rows = [("Half is $\frac12$.", "1"), ("One", "1"), (" One\n", "1"), ("a\tb", "1")]
    write_problems(tmp_path / "amc23.jsonl", rows)
    write_problems(tmp_path / "math_train.jsonl", [("Two", "2"), ("One ", "1")])
    mine = write_problems(tmp_path / "mine.jsonl", [("a b", "1")])
    done = cli("data", "check", str(tmp_path), "--train", str(mine), "--json")
    assert done.code == 2
    report = json.loads(done.out)["report"]
    amc = next(each for each in report["sets"] if each["name"] == "amc23")
    assert amc["control_characters"] == 2
    assert amc["damaged"] == [r"amc23-0: \frac"]
    assert amc["duplicates"] == ["amc23-2"]
    assert report["overlaps"] == [
        {
            "train": "math_train",
            "benchmark": "amc23",
            "pairs": [["math_train-1", "amc23-1"], ["math_train-1", "amc23-2"]],
        },
        {"train": str(mine), "benchmark": "amc23", "pairs": [["mine-0", "amc23-3"]]},
    ]


@pytest.mark.parametrize(
    ("folder", "said"), [("absent", "no such folder of problem files"), ("", "holds none of")]
)
def test_a_folder_without_any_file_is_refused(tmp_path: Path, cli: Cli, folder: str, said: str):
    done = cli("data", "check", str(tmp_path / folder))
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_an_unreadable_file_is_reported_with_its_line(tmp_path: Path):
    shutil.copy(SMALL / "amc23.jsonl", tmp_path / "amc23.jsonl")
    (tmp_path / "gsm8k.jsonl").write_text('{"id": "a"}\n')
    found = {each.name: each for each in check_data(tmp_path).sets}
    assert found["gsm8k"].verdict == "unreadable"
    assert "gsm8k.jsonl line 1: 'problem' is missing" in found["gsm8k"].says


def test_missing_data_names_the_remedies(tmp_path: Path):
    with pytest.raises(DataError, match=r"gsm8k\.jsonl: no such file; `hacpo data fetch gsm8k`"):
        read_set(benchmark("gsm8k"), tmp_path)
    with pytest.raises(DataError, match="or take aime24"):
        read_set(benchmark("aime25"), SMALL)


def test_the_folder_is_the_one_given_then_hacpo_data(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HACPO_DATA", raising=False)
    assert data_folder() == home / "data"
    monkeypatch.setenv("HACPO_DATA", "/some/where")
    assert data_folder() == Path("/some/where")
    assert data_folder(Path("here")) == Path("here")


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("\frac{1}{2}", r"\frac{1}{2}"),
        ("a \triangle b", r"a \triangle b"),
        (r"94 \qquad" + "\textbf{(C)} 9", r"94 \qquad\textbf{(C)} 9"),
        ("\beta and \right)", r"\beta and \right)"),
        ("{\n\treturn 2*sin(x);", "{\n\treturn 2*sin(x);"),
        ("three\tdresses", "three\tdresses"),
    ],
)
def test_decoded_commands_are_repaired_and_tabs_stay(text: str, right: str):
    assert repaired(text) == right
    assert bool(damaged(text)) == (text != right)
    assert damaged(right) == []
    assert control_characters(text) > 0


HUB_ROWS: dict[str, tuple[dict[str, Any], str, str]] = {
    "math500": ({"problem": "p", "answer": r"\pi", "unique_id": "u"}, "p", r"\pi"),
    "math": ({"problem": "p", "solution": r"So \boxed{\frac{1}{2}}."}, "p", r"\frac{1}{2}"),
    "math_train": ({"problem": "p", "solution": r"So $\boxed 2$."}, "p", "2"),
    "gsm8k": ({"question": "q", "answer": "so\n#### 1,200"}, "q", "1200"),
    "gsm8k_train": ({"question": "q", "answer": "so\n#### 7"}, "q", "7"),
    "aime25": ({"problem": "\frac12", "answer": "70", "id": "0"}, r"\frac12", "70"),
    "aime24": ({"Problem": "p", "Answer": 204}, "p", "204"),
    "amc23": ({"question": "q", "answer": 27.0}, "q", "27"),
    "minerva": ({"question": "q", "answer": "4.5e33"}, "q", "4.5e33"),
    "olympiad": ({"question": "q", "final_answer": ["$1$", "$2$"]}, "q", "$1$,$2$"),
}


@pytest.mark.parametrize("name", sorted(SETS))
def test_each_set_of_the_hub_becomes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    each = SETS[name]
    assert each.hub is not None
    row, problem, answer = HUB_ROWS[name]
    wanted = each.sources[0].count if name != "math_train" else 7500
    parts = len(each.hub.configs)
    shares = [wanted // parts + (i < wanted % parts) for i in range(parts)]
    asked: list[str | None] = []

    def load(id_: str, config: str | None, *, split: str, revision: str) -> Any:
        asked.append(config)
        return [row] * shares[len(asked) - 1]

    monkeypatch.setattr(datasets, "load_dataset", load)
    path = fetch(each, tmp_path)
    problems = load_problems(str(path))
    assert len(problems) == wanted
    assert (problems[0].id, problems[0].problem, problems[0].answer) == (
        f"{Path(each.file).stem}-0",
        problem,
        answer,
    )
    assert asked == [None if config == "default" else config for config in each.hub.configs]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ConnectionError("no route\nto host"), r"not to be had .*ConnectionError: no route to ho"),
        ([{"problem": "p", "answer": "1"}] * 499, "has 499 problems, expected 500"),
        ([{"text": "p"}] * 500, r"other columns than expected \(KeyError\('problem'\)\): text"),
        ([{"problem": "p", "answer": " "}] * 500, "math500: .*answer is empty"),
    ],
)
def test_what_the_hub_refuses_is_one_line_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, answer: Any, said: str
):
    def load(*_: Any, **__: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(DataError, match=said) as refusal:
        fetch(SETS["math500"], tmp_path)
    assert "\n" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []
    done = cli("data", "fetch", "math500", "--into", str(tmp_path))
    told, error = done.err.splitlines()
    assert (done.code, told) == (2, "hacpo: math500: from the hub, HuggingFaceH4/MATH-500")
    assert error.startswith("hacpo: error: math500")


def test_all_gets_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli):
    for each in SETS.values():
        if each.name != "amc23":
            write_problems(tmp_path / each.file, [("p", "1")])
    rows = [{"question": f"{i}?", "answer": float(i)} for i in range(40)]
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: rows)
    done = cli("data", "fetch", "all", "--into", str(tmp_path), "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"files": [str(tmp_path / "amc23.jsonl")]}
    assert len(load_problems(str(tmp_path / "amc23.jsonl"))) == 40
    assert len(load_problems(str(tmp_path / "gsm8k.jsonl"))) == 1


def test_fetching_an_unknown_set_is_refused(cli: Cli):
    done = cli("data", "fetch", "imo")
    assert done.code == 2
    assert "unknown data 'imo': choose from math500" in done.err
