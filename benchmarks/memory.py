"""Peak memory of one update above weights, gradients and optimizer: this project's and TRL's.

    python benchmarks/memory.py MODEL_FOLDER      # Gemma-3-270M: 262k tokens of vocabulary

32 rows of 512 tokens (128 prompt, 384 response), 8 rows a micro-batch, float32. Each side runs in
a process of its own; the peak is what Linux counts as resident since the update began.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

ROWS, MICRO, PROMPT, RESPONSE = 32, 8, 128, 384


def resident(key: str) -> int:
    """VmRSS or VmHWM of this process, in bytes."""
    found = re.search(rf"{key}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found.group(1)) * 1024


def peak_of(update: Any) -> int:
    """Bytes above what was resident before; the first call makes gradients and moments exist."""
    update()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    update()
    return resident("VmHWM") - before


def tokens() -> tuple[list[list[int]], list[list[int]]]:
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(5, 40_000, (ROWS, PROMPT), generator=generator).tolist()
    responses = torch.randint(5, 40_000, (ROWS, RESPONSE), generator=generator).tolist()
    return prompts, responses


def ours(model: str) -> int:
    from transformers import AutoModelForCausalLM

    from hacpo.models.learner import Learner
    from hacpo.models.packing import micro_batches
    from hacpo.models.policy import Policy
    from hacpo.models.tokens import AgentTokens
    from hacpo.settings import UpdateConfig
    from hacpo.types import View

    loaded = AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    policy = Policy(loaded, AgentTokens("a", None, "", (1,), 0, frozenset()), 1.0)
    learner = Learner(policy, UpdateConfig(learning_rate=1e-9))
    views = [
        View(rollout_id=str(i), problem_id="", source="a", prompt_ids=p, response_ids=r)
        for i, (p, r) in enumerate(zip(*tokens(), strict=True))
    ]

    def update() -> None:
        for micro in micro_batches(views, MICRO * (PROMPT + RESPONSE), policy.pack_tokens):
            assert len(micro) <= MICRO
            learner.backward(-policy.score(micro).logprobs_BT.mean())
        # gradients stay in memory, as in the other side's loop
        learner.optim_step()
        for weight in policy.weights.trained.values():
            weight.grad = torch.zeros_like(weight)

    return peak_of(update)


def trl(model: str) -> int:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    trainer = GRPOTrainer(
        model=loaded,
        processing_class=AutoTokenizer.from_pretrained(model),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_list([{"prompt": "1"}] * 8),
        args=GRPOConfig(
            output_dir="/tmp/trl-benchmark",
            per_device_train_batch_size=MICRO,
            num_generations=MICRO,
            beta=0.0,
            loss_type="grpo",
            importance_sampling_level="sequence",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
        ),
    )
    trainer.current_gradient_accumulation_steps = ROWS // MICRO
    optimizer = torch.optim.AdamW(loaded.parameters(), lr=1e-9, fused=True)
    prompts, responses = (torch.tensor(ids) for ids in tokens())

    def update() -> None:
        for start in range(0, ROWS, MICRO):
            part = slice(start, start + MICRO)
            batch = {
                "prompt_ids": prompts[part],
                "prompt_mask": torch.ones_like(prompts[part]),
                "completion_ids": responses[part],
                "completion_mask": torch.ones_like(responses[part]),
                "advantages": torch.ones(MICRO),
                "num_items_in_batch": torch.tensor(MICRO * RESPONSE),
            }
            trainer._compute_loss(loaded, batch).backward()
        optimizer.step()
        for parameter in loaded.parameters():
            parameter.grad.zero_()

    return peak_of(update)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--side", choices=["ours", "trl"])
    asked = parser.parse_args()
    if asked.side:
        torch.set_num_threads(2)
        print({"ours": ours, "trl": trl}[asked.side](asked.model))
        return
    peaks = {}
    for side in ("ours", "trl"):
        done = subprocess.run(
            [sys.executable, __file__, asked.model, "--side", side],
            stdout=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            print(f"{side}: ended with {done.returncode} (out of memory is -9)")
            continue
        peaks[side] = int(done.stdout.strip().splitlines()[-1])
        print(f"{side}: {peaks[side] / 1e9:.2f} GB")
    if len(peaks) == 2:
        print(f"ours is {peaks['ours'] / peaks['trl']:.2f} of TRL's")


if __name__ == "__main__":
    main()
