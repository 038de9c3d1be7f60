"""The sampling process starts, sleeps, fails and dies as its parent can rely on."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hacpo.engines.process import ChildError, ChildProcess
from hacpo.engines.vllm import VLLMEngine
from hacpo.errors import ConfigError, HacpoError
from hacpo.models.policy import Policy
from tests.parity.test_engine_vllm import PROMPTS, ids_of, largest_gap
from tests.parity.test_vllm_weights import make_policy, shake
from tests.vllm_engines import engine_of, needs_vllm

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    policy = make_policy(tmp_path_factory.mktemp("model"), tied=True)
    shake(policy, 1)
    return policy


@pytest.fixture(scope="module")
def engine(policy: Policy) -> Iterator[VLLMEngine]:
    """In bfloat16, so that the module measures that too."""
    engine = engine_of(policy, dtype="bfloat16")
    yield engine
    engine.close()


def greedy(engine: VLLMEngine) -> list[list[list[int]]]:
    return ids_of(engine.generate(PROMPTS, 1, temperature=0, max_tokens=8, seed=0))


def load(engine: VLLMEngine, policy: Policy) -> None:
    engine.load_weights(dict(policy.model.named_parameters()))


def alive(pid: int) -> bool:
    """Zombies have ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 10
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.vllm
@needs_vllm
def test_bfloat16_logprobs_are_near_the_float32_trainers(
    engine: VLLMEngine, policy: Policy
) -> None:
    load(engine, policy)
    groups = engine.generate(PROMPTS, 16, temperature=1.0, max_tokens=8, seed=1)
    assert 1e-4 < largest_gap(policy, groups, 1.0) < 0.5


@pytest.mark.vllm
@needs_vllm
def test_a_process_outlives_the_thread_that_started_it_and_samples_the_newest_after_sleep(
    engine: VLLMEngine, policy: Policy
) -> None:
    load(engine, policy)
    first, old = engine.pid, greedy(engine)
    engine.sleep()
    assert engine.pid is None
    assert first is not None
    assert not alive(first)
    with pytest.raises(AssertionError, match="load_weights comes before generate"):
        greedy(engine)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.5)
    starter = threading.Thread(target=load, args=(engine, policy))
    starter.start()
    starter.join()
    assert greedy(engine) != old
    groups = engine.generate(PROMPTS, 16, temperature=1.0, max_tokens=8, seed=1)
    assert largest_gap(policy, groups, 1.0) < 1.0


@pytest.mark.vllm
@needs_vllm
def test_a_process_that_dies_is_told_in_one_line_and_replaced(
    engine: VLLMEngine, policy: Policy
) -> None:
    load(engine, policy)
    pid = engine.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(HacpoError, match="agent 'a': its vllm engine failed to generate: died of"):
        greedy(engine)
    load(engine, policy)
    assert greedy(engine)


@pytest.mark.vllm
@needs_vllm
def test_weights_of_another_model_are_refused(engine: VLLMEngine, policy: Policy) -> None:
    load(engine, policy)
    named = dict(policy.model.named_parameters())
    del named["model.layers.1.self_attn.o_proj.weight"]
    with pytest.raises(HacpoError, match=r"failed to load weights: .*o_proj"):
        engine.load_weights(named)


@pytest.mark.vllm
@needs_vllm
def test_what_vllm_refuses_at_the_start_is_told_in_one_line(policy: Policy) -> None:
    engine = VLLMEngine(
        agent="a",
        model=policy.model.config._name_or_path,
        end_ids=(1,),
        decode=policy.tokens.decode,
        dtype="float32",
        max_model_tokens=64,
        kv_cache_bytes=1 << 45,
        threads=1,
    )
    with pytest.raises(HacpoError, match="vllm engine failed to start: ") as caught:
        load(engine, policy)
    assert "memory" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert engine.pid is None


def test_the_process_dies_with_a_killed_parent_even_while_starting() -> None:
    code = """
import time
from hacpo.engines.process import ChildProcess
child = ChildProcess("hacpo.engines.vllm_worker", {})
print(child.pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    time.sleep(1)
    assert alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for_end(pid)


def test_a_process_that_never_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hacpo.engines.process.SILENT_SECONDS", 0.3)
    child = ChildProcess("tests.hanging_child", {})
    with pytest.raises(ChildError, match="no answer for 0 s"):
        child.request("start")
    assert not alive(child.pid)


def test_without_vllm_the_engine_says_what_to_install(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hacpo.extras.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs the package vllm: pip install 'hacpo\[vllm\]'"):
        engine_of(policy)
