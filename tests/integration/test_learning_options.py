"""bfloat16, adapters, gradient checkpointing, offloading: other ways to the same training."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from hacpo.agents import CPU
from hacpo.api import Result, train
from hacpo.errors import ConfigError, DataError
from hacpo.run import close_run, open_run
from hacpo.types import StepSummary
from tests.tiny import tiny_pair

LORA = ["agents.a.lora.rank=4", "agents.b.lora.rank=4", "update.learning_rate=2e-2"]
BFLOAT16 = ["agents.a.dtype=bfloat16", "agents.b.dtype=bfloat16"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return tiny_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def run(pair: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Train the pair under further settings, in a home of its own."""

    def call(*overrides: str, home: str = "home") -> Result:
        monkeypatch.setenv("HACPO_HOME", str(tmp_path / home))
        return train(pair, overrides=list(overrides))

    return call


def reproducible(summary: StepSummary) -> dict[str, dict[str, float]]:
    return {
        name: {
            key: value
            for key, value in agent.metrics.items()
            if not key.startswith(("time/", "memory/", "throughput/"))
        }
        for name, agent in summary.agents.items()
    }


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-5), ("bfloat16", 1e-2)])
def test_at_the_first_update_every_self_ratio_is_one_and_nothing_is_clipped(
    run: Any, dtype: str, bound: float
) -> None:
    result = run(
        "steps=1",
        "update.rows_per_update=64",  # all rows: one update
        "algorithm.clip_low=0.02",
        f"agents.a.dtype={dtype}",
        f"agents.b.dtype={dtype}",
    )
    for agent in result.steps()[0].agents.values():
        assert agent.metrics["updates/count"] == 1
        assert agent.metrics["ratio/self_min"] == agent.metrics["ratio/self_max"] == 1
        # against the log-probabilities that the scoring pass stored, in other packs:
        assert agent.metrics["ratio/noise_min"] == pytest.approx(1, abs=bound)
        assert agent.metrics["ratio/noise_max"] == pytest.approx(1, abs=bound)
        assert agent.metrics["clip/self_low"] == agent.metrics["clip/self_high"] == 0


def test_the_sampler_gap_of_the_trainers_own_weights_is_rounding(run: Any) -> None:
    for dtype, bound in (("float32", 1e-5), ("bfloat16", 0.05)):
        overrides = [f"agents.{name}.dtype={dtype}" for name in "ab"]
        result = run("steps=1", *overrides, home=dtype)
        for agent in result.steps()[0].agents.values():
            assert agent.metrics["sampler_gap/max"] < bound
            assert agent.metrics["sampler_gap/exp_mean"] == pytest.approx(1, abs=bound)


def test_only_adapters_change_and_what_is_saved_runs_alone(run: Any, pair: dict[str, Any]) -> None:
    result = run(*LORA, "steps=2")
    for name in "ab":
        assert result.steps()[-1].agents[name].metrics["rollouts/consumed"] == 32  # 16 are cross
        saved = result.model(name)
        assert {path.name for path in saved.glob("*.safetensors")} == {"adapter_model.safetensors"}
        adapters = load_file(saved / "adapter_model.safetensors")
        assert all("lora_" in key for key in adapters)
        assert any(value.abs().max() > 0 for key, value in adapters.items() if "lora_B" in key)
        resident = open_run(result.cell.key[:16]).agents[name].policy.model
        before = load_file(Path(pair["agents"][name]["model"]) / "model.safetensors")
        for key, value in resident.named_parameters():
            if "lora_" not in key:
                assert torch.equal(value, before[key.replace(".base_layer", "")]), key
        alone = AutoModelForCausalLM.from_pretrained(saved)
        ids = torch.tensor([[2, 3, 4]])
        torch.testing.assert_close(alone(ids).logits, resident(ids).logits)
    close_run(result.cell.key[:16])


@pytest.mark.slow
def test_two_agents_with_adapters_learn_from_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HACPO_HOME", str(tmp_path))
    adapters = [f"agents.{name}.lora.rank=8" for name in "ab"]
    result = train(
        Path(__file__).parents[2] / "configs" / "embedded" / "pair.yaml",
        overrides=[*adapters, "steps=30", "update.learning_rate=2e-3", "evaluate.greedy=false"],
    )
    for name in "ab":
        (before,) = result.evaluations(name, 0)
        (after,) = result.evaluations(name)
        assert after.mean > before.mean + 0.1


def test_an_engine_gets_what_adapters_add(run: Any) -> None:
    result = run(*LORA, "steps=2")
    opened = open_run(result.cell.key[:16])
    policy = opened.agents["a"].policy
    plain = AutoModelForCausalLM.from_pretrained(opened.config.agents["a"].model)
    before = plain(torch.tensor([[2, 3, 4]])).logits
    plain.load_state_dict(policy.engine_weights(), strict=False)
    after = plain(torch.tensor([[2, 3, 4]])).logits
    assert not torch.allclose(before, after, atol=1e-3)
    torch.testing.assert_close(after, policy.model(torch.tensor([[2, 3, 4]])).logits)
    close_run(result.cell.key[:16])


@pytest.mark.parametrize(
    "options", [BFLOAT16, LORA, [*LORA, *BFLOAT16]], ids=["bf16", "lora", "both"]
)
def test_a_resumed_run_ends_at_the_same_weights(
    run: Any, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(*options, "steps=3", home="whole")
    import hacpo.loop

    step = hacpo.loop.train_step

    def killed(run_id: str, number: int, *rest: Any) -> StepSummary:
        if number == 2:
            raise KeyboardInterrupt
        return step(run_id, number, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(hacpo.loop, "train_step", killed)
        with pytest.raises(KeyboardInterrupt):
            run(*options, "steps=3", home="resumed")
    resumed = run(*options, "steps=3", home="resumed")
    for name in "ab":
        (one,) = whole.model(name).glob("*.safetensors")
        (other,) = resumed.model(name).glob("*.safetensors")
        assert one.read_bytes() == other.read_bytes()
    assert [reproducible(s) for s in whole.steps()] == [reproducible(s) for s in resumed.steps()]


def test_recomputing_activations_changes_no_gradient(run: Any) -> None:
    plain = run("steps=1", home="plain")
    recomputed = run("steps=1", "update.gradient_checkpointing=true", home="recomputed")
    for name in "ab":
        one = load_file(plain.model(name) / "model.safetensors")
        other = load_file(recomputed.model(name) / "model.safetensors")
        for key, value in one.items():
            torch.testing.assert_close(value, other[key], atol=1e-6, rtol=1e-5)


def test_offloading_changes_nothing(run: Any) -> None:
    plain, offloaded = (
        run("steps=2", home="plain"),
        run("steps=2", "offload=true", home="offloaded"),
    )
    assert [reproducible(s) for s in plain.steps()] == [reproducible(s) for s in offloaded.steps()]
    agent = open_run(offloaded.cell.key[:16]).agents["a"]
    assert agent.offloads
    assert all(p.device == CPU for p in agent.policy.model.parameters())
    close_run(offloaded.cell.key[:16])


def test_the_sampler_correction_weighs_rows_by_at_most_its_bound(
    run: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from hacpo.engines.hf import HFEngine

    sample = HFEngine._sample

    def shifted(self: HFEngine, tokens: list[int], logprobs: list[float]) -> Any:
        return sample(self, tokens, [value - 0.5 for value in logprobs])

    monkeypatch.setattr(HFEngine, "_sample", shifted)  # an engine that finds its tokens unlikelier
    result = run("steps=1", "algorithm.max_sampler_weight=1.2")
    for agent in result.steps()[0].agents.values():
        assert agent.metrics["sampler_gap/mean"] == pytest.approx(0.5, abs=1e-4)
        assert agent.metrics["sampler_gap/weight"] == pytest.approx(1.2)  # exp(0.5), cut
    assert "sampler_gap/mean 0.5 is over 0.05" in caplog.text


def test_retokenization_is_measured_for_each_source(run: Any) -> None:
    metrics = run("steps=1").steps()[0].agents["a"].metrics
    assert metrics["retokenized/identical_fraction/b"] == metrics["retokenized/identical_fraction"]
    assert metrics["retokenized/length_ratio/b"] == metrics["retokenized/length_ratio"]
    assert "retokenized/length_ratio/a" not in metrics


@pytest.mark.parametrize(
    ("targets", "told"),
    [
        ("[lm_head]", "'lm_head' is a layer of the vocabulary"),
        ("[embed_tokens]", "'embed_tokens' is a layer of the vocabulary"),
        ("[q_proj, nope]", "no layer is named 'nope'"),
        ('"*_proj"', "no layer is named '*_proj'"),
    ],
)
def test_adapters_of_layers_that_cannot_have_them_are_refused(
    run: Any, targets: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        run("steps=1", f"agents.a.lora.targets={targets}")


def test_one_layers_name_is_a_target(run: Any) -> None:
    saved = run("steps=1", "agents.a.lora.targets=v_proj").model("a")
    assert all("v_proj" in key for key in load_file(saved / "adapter_model.safetensors"))


def test_weights_that_are_missing_are_refused(
    run: Any, pair: dict[str, Any], tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(pair["agents"]["a"]["model"], broken)
    weights = load_file(broken / "model.safetensors")
    del weights["model.layers.0.self_attn.q_proj.weight"]
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match=r"1 weights of .* are missing or of another shape"):
        run("steps=1", f"agents.a.model={broken}")


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("rollout.max_response_tokens=60", "are more than its model can take (64): lower rollout"),
        (
            "rollout.max_prompt_tokens=2",
            "(prompts over rollout.max_prompt_tokens left out): 0 usable",
        ),
    ],
)
def test_lengths_that_do_not_fit_are_refused_before_sampling(
    run: Any, setting: str, told: str
) -> None:
    with pytest.raises(DataError, match=re.escape(told)):
        run("steps=1", setting)


def test_a_held_out_prompt_over_the_limit_is_refused(run: Any, tmp_path: Path) -> None:
    held_out = tmp_path / "long.jsonl"
    held_out.write_text('{"id": "long", "problem": "111+111+111+111+111=", "answer": "1"}\n')
    told = (
        "the prompt of held-out problem 'long' has 20 tokens: raise rollout.max_prompt_tokens (16)"
    )
    with pytest.raises(DataError, match=re.escape(told)):
        run("steps=1", f"problems.held_out={held_out}")
