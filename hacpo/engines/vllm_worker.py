"""The process that samples with vLLM; the only file that imports it.

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
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

import torch
from torch import Tensor

from hacpo.engines.weights import (
    Place,
    fingerprint,
    open_cuda_handles,
    sample_of,
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
        # Compiling takes longer than a short training on the CPU, and needs a C++ compiler.
        device_options: dict[str, Any] = (
            {"enforce_eager": True, "block_size": CPU_BLOCK_TOKENS}
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
        self._llm.collective_rpc(_load, args=(weights,))
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


def _load(worker: Any, weights: Mapping[str, Tensor]) -> None:
    """Runs inside vLLM's worker: every parameter of its model gets a new value."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.reload import (
        finalize_layerwise_reload,
        initialize_layerwise_reload,
    )

    model = worker.get_model()
    wanted = {name for name, _ in model.named_parameters()}
    with torch.no_grad(), set_current_vllm_config(worker.vllm_config):
        # CPU layers hold packed copies of their weights: a plain `model.load_weights` would change
        # nothing, or fail; vLLM's reload packs again.
        initialize_layerwise_reload(model)
        loaded = model.load_weights(weights.items())
        finalize_layerwise_reload(model, worker.model_config)
        _pack_tied(model)
    missing = wanted - loaded
    if missing:
        raise ValueError(f"no weights came for {sorted(missing)[:3]}")
    _check_held(model, weights)


def _pack_tied(model: torch.nn.Module) -> None:
    """Pack output layers again whose weights are the embedding's.

    vLLM's reload processes a tied weight for one of its layers only (its documented limitation 2);
    on the CPU the other one's packed copy would stay that of the old weights.
    """
    layers: list[Any] = [
        layer for layer in model.modules() if layer._parameters.get("weight") is not None
    ]
    users = Counter(id(layer.weight) for layer in layers)
    for layer in layers:
        if users[id(layer.weight)] > 1:
            layer.quant_method.process_weights_after_loading(layer)


def _check_held(model: torch.nn.Module, weights: Mapping[str, Tensor]) -> None:
    """The values that vLLM's model holds under a sent name are those that were sent."""
    for name, held in model.named_parameters():
        sent = weights.get(name)
        if sent is not None and sent.shape == held.shape:
            expected = sample_of(sent).to(held.dtype)
            if not torch.equal(sample_of(held), expected):
                raise ValueError(f"{name} does not hold the weights that were sent")


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
