"""The fast engine: vLLM in a process of its own, with the trainer's weights from memory.

The process starts with the first weights. vLLM itself is imported there only (`vllm_worker`).
"""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from hacpo.engines.base import Sample
from hacpo.engines.process import ChildError, ChildProcess
from hacpo.engines.vllm_worker import Ask, Sampled, Sent, Setup
from hacpo.engines.weights import cuda_handles, fingerprint, pack
from hacpo.errors import ConfigError, EngineError
from hacpo.extras import require, require_compiler

MIN_TEMPERATURE = 0.01
"""vLLM raises lower ones to this without a word that reaches anybody."""


class VLLMEngine:
    """Samples from the weights of the last `load_weights`; calls may come from any thread.

    Args:
        agent: named in errors.
        model: folder or hub id, for the architecture; its weights are not read.
        end_ids: every token that ends a response.
        decode: token ids to text without the end token.
        dtype: of weights and activations; auto is the one named in the model's config.
        max_model_tokens: of a prompt and its response together.
        device: cpu, cuda or cuda:N, the trainer's.
        gpu_memory_fraction: of the whole GPU, for weights and cache.
        kv_cache_bytes: the cache; None: what the fraction leaves (GPU), 1 GiB (CPU).
        threads: OpenMP threads on the CPU; None: as this process.
        compile_on_cpu: faster sampling, a slower start.
        revision: of a hub id.

    Raises:
        ConfigError: vLLM or what compiling needs is not installed, or this is not Linux.
    """

    reads_policy: ClassVar[bool] = False

    def __init__(
        self,
        *,
        agent: str,
        model: str,
        end_ids: tuple[int, ...],
        decode: Callable[[list[int]], str],
        dtype: Literal["float32", "bfloat16", "auto"],
        max_model_tokens: int,
        device: str = "cpu",
        gpu_memory_fraction: float = 0.4,
        kv_cache_bytes: int | None = None,
        threads: int | None = None,
        compile_on_cpu: bool = False,
        revision: str | None = None,
    ) -> None:
        require("vllm", "engine vllm")
        if sys.platform != "linux":
            raise ConfigError("engine vllm needs Linux: take engine hf")
        self._agent = agent
        self._decode = decode
        self._device = torch.device(device)
        on_cpu = self._device.type == "cpu"
        if on_cpu and compile_on_cpu:
            require_compiler("vllm.compile_on_cpu")
        # A GPU's tensors are opened as they are, a block on the CPU is half as large in bfloat16.
        self._sent_as: torch.dtype | None = (
            getattr(torch, dtype) if on_cpu and dtype != "auto" else None
        )
        self._setup = Setup(
            model=model,
            revision=revision,
            dtype=dtype,
            device=self._device.type,
            end_ids=end_ids,
            max_model_tokens=max_model_tokens,
            gpu_memory_fraction=gpu_memory_fraction,
            kv_cache_bytes=kv_cache_bytes or (1 << 30 if on_cpu else None),
            compile_on_cpu=compile_on_cpu,
        )
        self._environment = _environment(self._device, threads)
        self._child: ChildProcess | None = None
        self._loaded = False
        self._one_caller = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Of the sampling process, if it is running."""
        return None if self._child is None else self._child.pid

    def generate(
        self,
        prompts: list[list[int]],
        num_samples: int,
        *,
        temperature: float,
        max_tokens: int,
        seed: int,
    ) -> list[list[Sample]]:
        """See `hacpo.engines.base.Engine.generate`.

        Raises:
            ConfigError: a prompt is too long for the engine.
            EngineError: its process ended, or hangs.
        """
        assert self._loaded, "load_weights comes before generate"
        assert temperature == 0 or temperature >= MIN_TEMPERATURE
        if not prompts:
            return []
        longest = max(len(prompt) for prompt in prompts) + max_tokens
        limit = self._setup.max_model_tokens
        if longest > limit:  # vLLM would cut the response without a word
            raise ConfigError(
                f"agent {self._agent!r}: a prompt and its response may take {longest} tokens, its "
                f"engine was made for {limit}: raise max_prompt_tokens or shorten responses"
            )
        ask = Ask(
            prompts=prompts,
            num_samples=num_samples,
            temperature=temperature,
            max_tokens=max_tokens,
            seed=seed,
        )
        with self._one_caller:
            groups = self._request("generate", ask)
        return [[self._sample(sampled) for sampled in group] for group in groups]

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """See `hacpo.engines.base.Engine.load_weights`; starts the process if there is none.

        Raises:
            EngineError: the process cannot start, or refuses the weights.
        """
        with self._one_caller:
            self._loaded = False
            if self._child is None:
                self._start()
            arrived = self._send(weights)
            if arrived != fingerprint(weights, self._sent_as):
                self._end()
                raise EngineError(f"agent {self._agent!r}: its engine got other weights than sent")
            self._loaded = True

    def sleep(self) -> None:
        """See `hacpo.engines.base.Engine.sleep`; on the CPU the process ends."""
        with self._one_caller:
            self._loaded = False
            if self._child is None:
                return
            if self._device.type == "cpu":  # vLLM has no sleep mode there
                self._end()
            else:
                self._request("sleep")

    def close(self) -> None:
        """End the process; a second call does nothing."""
        with self._one_caller:
            self._end()

    def _start(self) -> None:
        try:
            self._child = ChildProcess("hacpo.engines.vllm_worker", self._environment)
        except ChildError as error:
            raise self._error("start", error) from None
        self._request("start", self._setup)

    def _send(self, weights: Mapping[str, Tensor]) -> Any:
        if self._device.type != "cpu":
            sent = Sent(places={}, handles=cuda_handles(weights), dtype=self._sent_as)
            return self._request("load", sent)
        descriptor, places = pack(weights, self._sent_as)
        try:
            sent = Sent(places=places, handles={}, dtype=self._sent_as)
            return self._request("load", sent, descriptor)
        finally:
            os.close(descriptor)

    def _request(self, name: str, argument: Any = None, descriptor: int | None = None) -> Any:
        assert self._child is not None
        try:
            return self._child.request(name, argument, descriptor=descriptor)
        except ChildError as error:
            self._end()
            raise self._error(name, error) from None
        except BaseException:  # interrupted in the middle of a reply: no further one fits
            self._end()
            raise

    def _error(self, name: str, error: ChildError) -> EngineError:
        doing = "load weights" if name == "load" else name
        return EngineError(f"agent {self._agent!r}: its vllm engine failed to {doing}: {error}")

    def _end(self) -> None:
        self._loaded = False
        if self._child is not None:
            self._child.end()
            self._child = None

    def _sample(self, sampled: Sampled) -> Sample:
        token_ids, logprobs, finish_reason = sampled
        return Sample(
            token_ids=token_ids,
            logprobs=logprobs,
            text=self._decode(token_ids),
            finish_reason=finish_reason,
        )


def _environment(device: torch.device, threads: int | None) -> dict[str, str]:
    """What the process needs before it imports vLLM."""
    environment = {
        # The engine core in the process itself: no grandchild that could outlive it.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    if device.type == "cuda":
        index = device.index or 0
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        environment["CUDA_VISIBLE_DEVICES"] = visible.split(",")[index] if visible else str(index)
    return environment
