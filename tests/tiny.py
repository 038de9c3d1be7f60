"""Two tiny language models that train in seconds, with real tokenizers: the real path, toy size.

Problems are sums of two bits of text, the answer is their parity as one digit after `#`. The models
are taught the form of an answer, not the answer, so about half of what they sample is correct.
"""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHARACTERS = ["#", "+", "=", "0", "1"]
PAIRS = ["00", "01", "10", "11"]


def tiny_pair(folder: Path) -> dict[str, Any]:
    """Write two models and two problem files into `folder`.

    Returns:
        A config for `hacpo.train`: hacpo on both agents, 2 steps of 4 problems x 4 responses.
    """
    models_ = {
        "a": tiny_model(folder / "a", tiny_tokenizer([*CHARACTERS]), width=16, seed=1),
        "b": tiny_model(folder / "b", tiny_tokenizer([*PAIRS, *CHARACTERS]), width=24, seed=2),
    }
    train, held_out = tiny_problems(folder)
    return {
        "name": "tiny",
        "method": "hacpo",
        "seed": 0,
        "agents": {name: {"model": str(path)} for name, path in models_.items()},
        "problems": {"train": str(train), "held_out": str(held_out)},
        "verifier": {"type": "marker", "marker": "#"},
        "steps": 2,
        "algorithm": {"clip_low": 0.02, "clip_high": 0.02},
        "rollout": {"responses_per_problem": 4, "max_prompt_tokens": 16, "max_response_tokens": 6},
        "update": {
            "problems_per_step": 4,
            "rows_per_update": 16,
            "learning_rate": 1e-3,
            "micro_tokens": 512,
        },
        "evaluate": {"samples": 2, "greedy": True},
        "checkpoints": {"every": 1, "keep_last": 1, "keep_best": 1},
        "device": "cpu",
    }


def tiny_problems(folder: Path) -> tuple[Path, Path]:
    """16 problems to train on and 8 others that are held out."""
    rows = []
    for i in range(24):
        left, right = divmod(i, 8)
        problem = f"{left + 1:03b}+{right:03b}="
        rows.append({"id": f"p{i}", "problem": problem, "answer": str((left + 1 + right) % 2)})
    paths = folder / "train.jsonl", folder / "held_out.jsonl"
    for path, some in zip(paths, (rows[:16], rows[16:]), strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")
    return paths


def tiny_tokenizer(pieces: list[str], *, end: bool = True) -> PreTrainedTokenizerFast:
    """One token for each piece, longest first; `end` False gives one without an end token."""
    specials = ["<pad>", "<eos>"] if end else ["<pad>"]
    vocabulary = {token: i for i, token in enumerate([*specials, *pieces])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    longest = sorted(pieces, key=len, reverse=True)
    pattern = "|".join("\\" + piece if piece == "+" else piece for piece in longest)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    ends = {"eos_token": "<eos>"} if end else {}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", **ends)


def tiny_model(folder: Path, tokenizer: PreTrainedTokenizerFast, *, width: int, seed: int) -> Path:
    """Save a Llama of one layer that answers `#0` or `#1` at random, then ends."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=64,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        model = LlamaForCausalLM(config)
        if tokenizer.eos_token_id is not None:
            _teach_form(model, tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _teach_form(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    bits = torch.Generator().manual_seed(0)
    for _ in range(40):
        values = torch.randint(0, 8, (16, 3), generator=bits).tolist()
        texts = [f"{a:03b}+{b:03b}=#{c % 2}<eos>" for a, b, c in values]
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
