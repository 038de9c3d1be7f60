"""The process that samples with vLLM, which nobody else imports but `vllm_load`.

    python -m hacpo.engines.vllm_worker CONNECTION PARENT

Requests and replies are tuples on the connection: `("start", Setup)` first, then `load`, `generate`
and `sleep`, each answered by `("ok", value)` or `("error", one line)`. The engine core runs in this
very process, so that nothing is left when it is killed.
"""

import ctypes
import hashlib
import os
import queue
import signal
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

import torch

from hacpo.engines.vllm_load import load_into
from hacpo.engines.weights import (
    Place,
    fingerprint,
    open_cuda_handles,
    unpack,
)
from hacpo.types import FinishReason

_PR_SET_PDEATHSIG = 1
_MAX_REASON = 300
CPU_BLOCK_TOKENS = 32
"""The smallest block of the CPU kernels: shorter prompts are shared among their samples, too."""

Request = tuple[str, Any, int | None]
"""Name, argument, and a descriptor that came with it."""
Sampled = tuple[list[int], list[float], FinishReason]
"""Token ids, their log-probabilities, and why the response ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What an engine is started with."""

    model: str
    """Folder or hub id; only its config is read."""
    revision: str | None
    dtype: str
    device: str
    """`cpu` or `cuda`."""
    end_ids: tuple[int, ...]
    max_model_tokens: int
    gpu_memory_fraction: float
    kv_cache_bytes: int | None
    compile_on_cpu: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One call of `Engine.generate`."""

    prompts: list[list[int]]
    num_samples: int
    temperature: float
    max_tokens: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """How weights come: in a block whose descriptor is sent too (`places`), or by CUDA handles."""

    places: dict[str, Place]
    handles: dict[str, tuple[Any, ...]]
    dtype: torch.dtype | None
    """What floating-point numbers were rounded to on their way."""


def main() -> None:
    """Serve until the connection ends."""
    connection = Connection(int(sys.argv[1]))
    _die_with_parent(int(sys.argv[2]))
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, requests), daemon=True).start()
    _, setup, _ = requests.get()
    try:
        sampler = Sampler(setup)
    except (Exception, SystemExit) as error:  # vLLM and what it imports can raise anything
        connection.send(("error", describe(error)))
        os._exit(1)
    connection.send(("ok", None))
    while True:
        name, argument, descriptor = requests.get()
        try:
            match name:
                case "load":
                    reply: object = sampler.load(argument, descriptor)
                case "generate":
                    reply = sampler.generate(argument)
                case _:
                    assert name == "sleep"
                    sampler.sleep()
                    reply = None
            connection.send(("ok", reply))
        except Exception as error:  # as above; the parent ends this process
            connection.send(("error", describe(error)))


class Sampler:
    """A vLLM engine whose weights come from a trainer."""

    def __init__(self, setup: Setup) -> None:
        from vllm import LLM

        self._end_ids = setup.end_ids
        self._asleep = False
        on_cpu = setup.device == "cpu"
        device_options: dict[str, Any] = (
            {"enforce_eager": not setup.compile_on_cpu, "block_size": CPU_BLOCK_TOKENS}
            if on_cpu
            else {
                "enable_sleep_mode": True,
                "gpu_memory_utilization": setup.gpu_memory_fraction,
            }
        )
        self._llm: Any = LLM(
            model=setup.model,
            revision=setup.revision,
            dtype=setup.dtype,
            max_model_len=setup.max_model_tokens,
            kv_cache_memory_bytes=setup.kv_cache_bytes,
            load_format="dummy",
            skip_tokenizer_init=True,
            # Nothing of generation_config.json (temperature, top_k) may change the distribution.
            generation_config="vllm",
            # At the sampling temperature; greedy requests come out at temperature 1.
            logprobs_mode="processed_logprobs",
            enable_prefix_caching=True,
            disable_log_stats=True,
            seed=0,
            **device_options,
        )

    def load(self, sent: Sent, descriptor: int | None) -> dict[str, float]:
        """Take over weights; returns the fingerprint of what arrived."""
        if descriptor is None:
            weights = open_cuda_handles(sent.handles)
        else:
            weights = unpack(descriptor, sent.places)
            os.close(descriptor)
        if self._asleep:
            self._llm.wake_up(tags=["weights"])
        self._llm.collective_rpc(load_into, args=(weights,))
        arrived = fingerprint(weights, sent.dtype)
        if self._asleep:
            self._llm.wake_up(tags=["kv_cache"])
            self._asleep = False
        self._llm.reset_prefix_cache()
        return arrived

    def sleep(self) -> None:
        """Give weights and cache back to the GPU until `load`; the CPU has no such mode."""
        self._llm.sleep(level=2)
        self._asleep = True

    def generate(self, ask: Ask) -> list[list[Sampled]]:
        """See `hacpo.engines.base.Engine.generate`."""
        from vllm import SamplingParams

        # What an earlier call left in the cache would change how prompts are cut into passes, and
        # with it the last bits of the logits: equal calls give equal samples.
        self._llm.reset_prefix_cache()
        greedy = ask.temperature == 0
        parameters = [
            SamplingParams(
                n=1 if greedy else ask.num_samples,
                temperature=ask.temperature,
                top_p=1.0,
                top_k=0,
                max_tokens=ask.max_tokens,
                seed=_seed(ask.seed, index),
                stop_token_ids=list(self._end_ids),
                ignore_eos=True,  # these end ids and no others
                logprobs=0,
                flat_logprobs=True,
                detokenize=False,
            )
            for index in range(len(ask.prompts))
        ]
        outputs = self._llm.generate(
            [{"prompt_token_ids": ids} for ids in ask.prompts], parameters, use_tqdm=False
        )
        groups = [
            [_sampled(one) for one in sorted(output.outputs, key=lambda one: one.index)]
            for output in outputs
        ]
        return [group * ask.num_samples for group in groups] if greedy else groups


def describe(error: BaseException) -> str:
    """One line for an exception."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_MAX_REASON]


def _sampled(output: Any) -> Sampled:
    if output.finish_reason not in ("stop", "length"):
        raise RuntimeError(f"a response ended for the reason {output.finish_reason!r}")
    token_ids = [int(token) for token in output.token_ids]
    assert output.logprobs.token_ids == token_ids
    return token_ids, list(output.logprobs.logprobs), output.finish_reason


def _seed(seed: int, index: int) -> int:
    """Of one prompt; vLLM adds a sample's number to it, so prompts must not be neighbours."""
    digest = hashlib.sha256(f"{seed}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2


def _die_with_parent(parent: int) -> None:
    """End with the parent even while C code blocks every Python thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        os._exit(1)


def _read(connection: Connection, requests: "queue.SimpleQueue[Request]") -> None:
    """Pass requests on; at the end of the connection end this process and what it has started."""
    try:
        while True:
            name, argument, has_descriptor = connection.recv()
            descriptor = recv_handle(connection) if has_descriptor else None
            requests.put((name, argument, descriptor))
    except (EOFError, OSError):
        os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
