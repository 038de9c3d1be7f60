"""TRL's GRPOTrainer on the same work, in a process of its own; prints one JSON line.

    pip install trl==1.16.0 && python benchmarks/trl_step.py MODEL --dtype float32

A cycle is one generation of all responses and the optimizer steps that consume them. The last
cycles are timed, after one that warms up.
"""

import argparse
import json
import time
from typing import Any

import torch

PROMPT = "What is {problem}? Reply with the number only."


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--responses", type=int, default=8)
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--plain", help="prompt of a model without chat template")
    parser.add_argument("--micro-rows", type=int, default=32)
    parser.add_argument("--cycles", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(2)

    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from hacpo.problems import load_problems
    from hacpo.verifiers.last_number import grade_last_number

    problems = load_problems("sums:train")
    rows = []
    for problem in problems:
        template = asked.plain.encode().decode("unicode_escape") if asked.plain else PROMPT
        text = template.replace("{problem}", problem.problem)
        prompt: Any = text if asked.plain else [{"role": "user", "content": text}]
        rows.append({"prompt": prompt, "answer": problem.answer})

    lengths: list[int] = []

    def reward(completions: list[Any], answer: list[str], completion_ids: Any, **_: Any) -> Any:
        lengths.extend(len(ids) for ids in completion_ids)
        texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
        return [grade_last_number(a, t).reward for a, t in zip(answer, texts, strict=True)]

    begun: list[float] = []
    ended: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            begun.append(time.monotonic())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            ended.append(time.monotonic())

    per_cycle = 8 * asked.responses
    per_update = per_cycle // asked.updates
    accumulate = max(1, per_update // asked.micro_rows)
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(asked.model, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(asked.model),
        reward_funcs=reward,
        train_dataset=Dataset.from_list(rows),
        callbacks=[Clock()],
        args=GRPOConfig(
            output_dir="/tmp/trl-benchmark",
            per_device_train_batch_size=per_update // accumulate,
            gradient_accumulation_steps=accumulate,
            generation_batch_size=per_cycle,
            num_generations=asked.responses,
            max_completion_length=asked.tokens,
            beta=0.0,
            loss_type="grpo",
            importance_sampling_level="sequence",
            epsilon=3e-4,
            epsilon_high=4e-4,
            temperature=1.0,
            top_k=0,
            learning_rate=5e-6,
            lr_scheduler_type="constant",
            max_steps=asked.cycles * asked.updates,
            bf16=asked.dtype == "bfloat16",
            use_cpu=True,
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
            logging_steps=1000,
            disable_tqdm=True,
        ),
    )
    trainer.train()
    starts, ends = begun[:: asked.updates], ended[asked.updates - 1 :: asked.updates]
    seconds = [end - start for start, end in zip(starts, ends, strict=True)][1:]
    print(json.dumps({"seconds": seconds, "mean_length": sum(lengths) / len(lengths)}))


if __name__ == "__main__":
    main()
