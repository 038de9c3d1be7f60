"""A whole training that samples with vLLM: it always has the trainer's newest weights."""

from pathlib import Path
from typing import Any

import pytest

import hacpo.loop
from hacpo.api import Result, train
from hacpo.run import open_run
from hacpo.types import StepSummary
from tests.integration.test_vllm_process import alive
from tests.tiny import CHARACTERS, tiny_model, tiny_pair, tiny_tokenizer
from tests.vllm_engines import needs_vllm

pytestmark = [pytest.mark.vllm, needs_vllm]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Agent a samples with vLLM, agent b with transformers; weights move fast."""
    monkeypatch.setenv("HACPO_HOME", str(tmp_path / "home"))
    data = tiny_pair(tmp_path)
    wide = tiny_model(tmp_path / "wide", tiny_tokenizer([*CHARACTERS]), width=64, seed=1)
    data["agents"]["a"] = {"model": str(wide), "engine": "vllm"}
    data["update"]["learning_rate"] = 1e-2
    return data | {"steps": 3, "vllm": {"kv_cache_gb": 0.03}, "tracking": {"kl_every": 1}}


def test_every_rollout_is_of_the_newest_weights_and_the_first_after_resume_too(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    step, pids = hacpo.loop.train_step, []

    def interrupted(run_id: str, number: int, *rest: Any) -> StepSummary:
        pids.append(getattr(open_run(run_id).agents["a"].engine, "pid", None))
        if number == 2:
            raise KeyboardInterrupt
        return step(run_id, number, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(hacpo.loop, "train_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(config)
    assert not alive(pids[-1])

    result: Result = train(config)
    steps = result.steps()
    assert [summary.step for summary in steps] == [0, 1, 2]
    for summary in steps:
        metrics = summary.agents["a"].metrics
        assert metrics["sampler_gap/max"] < 1e-3  # of older weights it would be as below
        assert metrics["memory/peak"] > summary.agents["b"].metrics["memory/peak"]
    assert steps[-1].agents["a"].metrics["kl/initial"] > 0.05
    assert result.evaluations("a")[0].counts
