"""Tokens per second: engines hf and vllm against transformers.generate, on one model.

    python benchmarks/sampling.py MODEL_FOLDER

8 prompts of 45 tokens x 8 samples x 48 tokens, none ends early; two threads. Beside it the limit
that memory sets: the weights must be read once for each decoding step of all rows.
"""

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

import torch

PROMPTS, SAMPLES, TOKENS = 8, 8, 48
NEVER = 1 << 20
"""An end token that no model has."""


def best(*runs: Callable[[], Any], times: int = 5) -> list[float]:
    """Tokens per second of the fastest call of each, in turns: a machine has slow minutes."""
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(times):
        for run, own in zip(runs, seconds, strict=True):
            started = time.monotonic()
            run()
            own.append(time.monotonic() - started)
    return [PROMPTS * SAMPLES * TOKENS / min(own) for own in seconds]


def bandwidth() -> float:
    """Bytes per second that two threads read."""
    block = torch.ones(1 << 27)  # 512 MB, more than caches hold
    block.sum()
    started = time.monotonic()
    for _ in range(5):
        block.sum()
    return 5 * block.nbytes / (time.monotonic() - started)


def measure(folder: str, dtype: str, prompts: list[list[int]], *, with_vllm: bool) -> None:
    from transformers import AutoModelForCausalLM

    from hacpo.engines.hf import HFEngine
    from hacpo.engines.vllm import VLLMEngine

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, dtype), attn_implementation="sdpa"
    ).eval()
    engine = HFEngine(model, end_ids=(NEVER,), pad_id=0, decode=lambda ids: "", batch_rows=256)
    settings = {"temperature": 1.0, "max_tokens": TOKENS, "seed": 0}
    ids = torch.tensor([prompt for prompt in prompts for _ in range(SAMPLES)])
    sampled: dict[str, Any] = {"do_sample": True, "top_k": 0, "pad_token_id": 0}
    sampled |= {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS}
    mask = torch.ones_like(ids)
    generate = functools.partial(model.generate, input_ids=ids, attention_mask=mask, **sampled)
    plain, hf = best(generate, lambda: engine.generate(prompts, SAMPLES, **settings))
    print(f"{dtype}: transformers.generate {plain:.0f}, hf {hf:.0f} tokens/s, {hf / plain:.2f}x")
    size = sum(p.nbytes for p in model.parameters())
    limit = PROMPTS * SAMPLES * bandwidth() / size
    print(f"  limit of memory {limit:.0f} tokens/s ({size / 1e6:.0f} MB of weights)", flush=True)
    for compiled in (False, True) if with_vllm else ():
        fast = VLLMEngine(
            agent="a",
            model=folder,
            end_ids=(0,),  # as good as never sampled
            decode=lambda ids: "",
            dtype=dtype,
            max_model_tokens=128,
            kv_cache_bytes=1 << 29,
            threads=2,
            compile_on_cpu=compiled,
        )
        started = time.monotonic()
        fast.load_weights(dict(model.named_parameters()))
        start = time.monotonic() - started
        fast.generate(prompts, SAMPLES, **settings)  # compiled code is loaded at its first use
        plain, vllm = best(generate, functools.partial(fast.generate, prompts, SAMPLES, **settings))
        fast.close()
        told = f"{vllm:.0f} tokens/s, {vllm / plain:.2f}x {plain:.0f}, started in {start:.0f} s"
        print(f"  vllm{', compiled' * compiled} {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--no-vllm", action="store_true")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    asked = parser.parse_args()
    torch.set_num_threads(2)
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(5, 40_000, (PROMPTS, 45), generator=generator).tolist()
    print(f"memory: {bandwidth() / 1e9:.1f} GB/s")
    for dtype in asked.dtypes:
        measure(asked.model, dtype, prompts, with_vllm=not asked.no_vllm)


if __name__ == "__main__":
    main()
