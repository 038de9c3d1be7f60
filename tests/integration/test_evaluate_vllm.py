"""Both engines evaluate alike: the same greedy answers, results of one shape."""

import json
from pathlib import Path

import pytest

from tests.benchmark_data import write_problems
from tests.cli_runner import Cli
from tests.tiny import CHARACTERS, tiny_model, tiny_tokenizer
from tests.vllm_engines import needs_vllm

pytestmark = [pytest.mark.vllm, pytest.mark.slow, needs_vllm]


def test_results_of_both_engines_are_alike(
    cli: Cli, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(f"{i % 8:03b}+{i // 8:03b}=", str(i % 2)) for i in range(6)]
    for name in ("gsm8k", "aime24"):
        write_problems(tmp_path / "data" / f"{name}.jsonl", rows)
    monkeypatch.setenv("HACPO_DATA", str(tmp_path / "data"))
    model = tiny_model(tmp_path / "tiny", tiny_tokenizer([*CHARACTERS]), width=64, seed=1)
    found = {}
    for engine in ("hf", "vllm"):
        done = cli(
            *("evaluate", str(model), "--benchmarks", "gsm8k,aime24", "--engine", engine),
            *("--max-tokens", "4", "--prompt", "{problem}", "--set", "vllm.kv_cache_gb=0.03"),
            "--json",
        )
        assert done.code == 0, done.err
        (subject,) = json.loads(done.out)
        found[engine] = subject["benchmarks"]
        folder = Path(subject["folder"])
    for hf, vllm in zip(found["hf"], found["vllm"], strict=True):
        assert hf.keys() == vllm.keys()
        assert hf["metrics"].keys() == vllm["metrics"].keys()
        assert hf["scores"].keys() == vllm["scores"].keys()
        assert vllm["made_with"].keys() - hf["made_with"].keys() == {"vllm"}
    lines = {
        engine: (folder / f"gsm8k.{engine}.float32.4.jsonl").read_text().splitlines()[1:]
        for engine in found
    }
    assert [json.loads(line) for line in lines["hf"]] == [json.loads(x) for x in lines["vllm"]]
    sampled = (folder / "aime24.vllm.float32.4.jsonl").read_text().splitlines()[1:]
    texts = {answer["text"] for line in sampled for answer in json.loads(line)["answers"]}
    assert len(texts) > 1
