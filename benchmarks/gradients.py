"""Whether this project's GSPO gradient is TRL's, on one batch in float32.

    pip install trl==1.16.0 && python benchmarks/gradients.py MODEL_FOLDER

32 rows: 4 prompts x 8 responses of different lengths with random advantages, at the first update.
"""

import argparse
import json
import tempfile

import torch

PROMPTS, SAMPLES = 4, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    asked = parser.parse_args()
    torch.set_num_threads(2)
    from datasets import Dataset
    from torch.nn.utils.rnn import pad_sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from hacpo.algorithm import mean_logprob, policy_objective, update_loss
    from hacpo.models.packing import micro_batches
    from hacpo.models.policy import Policy
    from hacpo.models.tokens import AgentTokens
    from hacpo.types import View

    generator = torch.Generator().manual_seed(0)
    advantages_B = torch.randn(PROMPTS * SAMPLES, generator=generator)
    views = []
    for p in range(PROMPTS):
        prompt = torch.randint(5, 40_000, (45,), generator=generator).tolist()
        for s in range(SAMPLES):
            response = torch.randint(5, 40_000, (6 * s + 6,), generator=generator).tolist()
            views.append(
                View(
                    rollout_id=f"{p}/{s}",
                    problem_id=str(p),
                    source="a",
                    prompt_ids=prompt,
                    response_ids=response,
                )
            )

    mine = AutoModelForCausalLM.from_pretrained(
        asked.model, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    policy = Policy(mine, AgentTokens("a", None, "", (1,), 0, frozenset()), 1.0)
    number = {view.rollout_id: i for i, view in enumerate(views)}
    for micro in micro_batches(views, 2048, policy.pack_tokens):
        scores = policy.score(micro)
        new_B = mean_logprob(scores.logprobs_BT.double(), scores.mask_BT)
        rows = [number[view.rollout_id] for view in micro]
        objective_B, _ = policy_objective(
            new_B,
            new_B.detach(),
            advantages_B[rows].double(),
            torch.ones(len(rows), dtype=torch.bool),
            torch.ones(len(rows), dtype=torch.float64),
            clip_low=3e-4,
            clip_high=4e-4,
            floor=None,
            alpha=1.0,
            max_abs_log_ratio=10.0,
            shared_rule="self",
        )
        update_loss(objective_B, len(views)).backward()

    theirs = AutoModelForCausalLM.from_pretrained(asked.model, dtype=torch.float32)
    trainer = GRPOTrainer(
        model=theirs,
        processing_class=AutoTokenizer.from_pretrained(asked.model),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_list([{"prompt": "1"}] * 8),
        args=GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=8,
            beta=0.0,
            loss_type="grpo",
            importance_sampling_level="sequence",
            epsilon=3e-4,
            epsilon_high=4e-4,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
        ),
    )
    trainer.current_gradient_accumulation_steps = 1
    responses = [torch.tensor(view.response_ids) for view in views]
    batch = {
        "prompt_ids": torch.tensor([view.prompt_ids for view in views]),
        "prompt_mask": torch.ones(len(views), 45, dtype=torch.long),
        "completion_ids": pad_sequence(responses, batch_first=True),
        "completion_mask": pad_sequence([torch.ones_like(r) for r in responses], batch_first=True),
        "advantages": advantages_B,
        "num_items_in_batch": torch.tensor(sum(map(len, responses))),
    }
    theirs.eval()
    trainer._compute_loss(theirs, batch).backward()

    pairs = [
        (one.grad.flatten().double(), other.grad.flatten().double())
        for one, other in zip(mine.parameters(), theirs.parameters(), strict=True)
    ]
    ours_all, theirs_all = (torch.cat(side) for side in zip(*pairs, strict=True))
    worst = min(float(torch.cosine_similarity(a, b, 0)) for a, b in pairs)
    print(
        json.dumps(
            {
                "cosine": float(torch.cosine_similarity(ours_all, theirs_all, 0)),
                "worst parameter": worst,
                "norms": [float(ours_all.norm()), float(theirs_all.norm())],
            }
        )
    )


if __name__ == "__main__":
    main()
