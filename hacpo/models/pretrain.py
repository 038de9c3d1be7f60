"""Carrying out the recipe of an embedded agent: tokenizer, model, pre-training on solutions.

Axes: S sums, B rows of a batch, T tokens (padded right).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from hacpo.models.recipes import Recipe
from hacpo.problems import arithmetic

PAD, END = "<pad>", "<end>"
MAX_POSITIONS = 64
_REPORT_EVERY = 20
_ABSENT = "<unknown>"
"""In no vocabulary: a character that an agent does not know is an error and not left out."""


def pretrain(recipe: Recipe, progress: Callable[[str], None]) -> tuple[Any, Any]:
    """Train a model from nothing on the CPU; returns (model, tokenizer).

    The same recipe gives the same weights on one machine with one number of threads. Torch's
    global random state is left alone.
    """
    tokenizer = make_tokenizer(recipe)
    data = tokenize_solutions(tokenizer)
    generator = torch.Generator().manual_seed(recipe.seed)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"), torch.enable_grad():
        torch.manual_seed(recipe.seed)
        model = make_model(recipe, tokenizer)
        optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: _rate(recipe, done))
        model.train()
        for batch in range(recipe.batches):
            loss = _loss(model, *_draw(data, recipe, generator))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
            optimizer.step()
            schedule.step()
            if (batch + 1) % _REPORT_EVERY == 0:
                progress(f"batch {batch + 1} of {recipe.batches}, loss {loss.item():.3f}")
    return model.eval(), tokenizer


def make_tokenizer(recipe: Recipe) -> Any:
    """An ordinary fast tokenizer that decodes exactly what it encodes and adds nothing."""
    characters = list(arithmetic.CHARACTERS)
    match recipe.tokenizer:
        case "characters":
            tokenizer = Tokenizer(models.WordLevel(_vocabulary(characters)))
            tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
        case "digit_pairs":
            pairs = [f"{number:02}" for number in range(100)]
            tokenizer = Tokenizer(models.WordLevel(_vocabulary(characters + pairs)))
            tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("[0-9]{2}|."), "isolated")
        case "merges":
            merged = recipe.merges.split()
            merges = [(token[0], token[1]) for token in merged]
            tokenizer = Tokenizer(
                models.BPE(_vocabulary(characters + merged), merges, unk_token=_ABSENT)
            )
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_POSITIONS,
        model_input_names=["input_ids", "attention_mask"],
    )


def make_model(recipe: Recipe, tokenizer: Any) -> Any:
    """The untrained model, initialised from torch's global random state."""
    common = {
        "vocab_size": len(tokenizer),
        "initializer_range": recipe.initializer_range,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    match recipe.architecture:
        case "llama":
            config = LlamaConfig(
                hidden_size=recipe.width,
                intermediate_size=recipe.intermediate,
                num_hidden_layers=recipe.layers,
                num_attention_heads=recipe.heads,
                max_position_embeddings=MAX_POSITIONS,
                **common,
            )
            model = LlamaForCausalLM(config)
        case "gpt2":
            config = GPT2Config(
                n_embd=recipe.width,
                n_inner=recipe.intermediate,
                n_layer=recipe.layers,
                n_head=recipe.heads,
                n_positions=MAX_POSITIONS,
                activation_function="gelu_pytorch_tanh",
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                **common,
            )
            model = GPT2LMHeadModel(config)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


def _vocabulary(tokens: list[str]) -> dict[str, int]:
    return {token: i for i, token in enumerate([PAD, END, *tokens])}


@dataclass(frozen=True, slots=True, kw_only=True)
class Solutions:
    """Both writings of every sum of the train split; index 1 of the second axis is careless."""

    token_ids: Tensor
    """[S, 2, T] problem, solution, end token."""
    is_learned: Tensor
    """[S, 2, T] True at solution and end tokens."""
    num_additions: int
    """They come first."""


def tokenize_solutions(tokenizer: Any) -> Solutions:
    """All that an agent learns from."""
    sums = arithmetic.splits()[0]
    problems = [arithmetic.problem_of(numbers).problem for numbers in sums for _ in range(2)]
    solutions = [arithmetic.solution_text(n, careless=c) for n in sums for c in (False, True)]
    encode = tokenizer.backend_tokenizer.encode_batch_fast
    prompts, responses = encode(problems), encode(solutions)
    end = tokenizer.eos_token_id
    rows = [(p.ids, [*r.ids, end]) for p, r in zip(prompts, responses, strict=True)]
    width = max(len(prompt) + len(response) for prompt, response in rows)
    pads = [width - len(prompt) - len(response) for prompt, response in rows]
    padded = [(p, r, pad) for (p, r), pad in zip(rows, pads, strict=True)]
    # the padding is neither learned nor attended to: any id serves
    ids = [p + r + [end] * pad for p, r, pad in padded]
    learned = [[False] * len(p) + [True] * len(r) + [False] * pad for p, r, pad in padded]
    return Solutions(
        token_ids=torch.tensor(ids).view(len(sums), 2, width),
        is_learned=torch.tensor(learned).view(len(sums), 2, width),
        num_additions=sum(operator == "+" for _, operator, _ in sums),
    )


def _draw(data: Solutions, recipe: Recipe, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A fresh batch: (token ids, learned positions), both [B, T]."""
    half, rest = recipe.batch_rows // 2, recipe.batch_rows - recipe.batch_rows // 2
    num_sums, num_additions = len(data.token_ids), data.num_additions
    chosen_B = torch.cat(
        [
            torch.randint(num_additions, (half,), generator=generator),
            torch.randint(num_additions, num_sums, (rest,), generator=generator),
        ]
    )
    shares = torch.tensor([recipe.careless_additions, recipe.careless_subtractions])
    share_B = shares.repeat_interleave(torch.tensor([half, rest]))
    careless_B = (torch.rand(recipe.batch_rows, generator=generator) < share_B).long()
    return data.token_ids[chosen_B, careless_B], data.is_learned[chosen_B, careless_B]


def _loss(model: Any, ids_BT: Tensor, learned_BT: Tensor) -> Tensor:
    """Mean next-token loss; only learned positions reach the output layer."""
    hidden = model.base_model(input_ids=ids_BT[:, :-1], use_cache=False).last_hidden_state
    logits = model.get_output_embeddings()(hidden[learned_BT[:, 1:]])
    return cross_entropy(logits, ids_BT[:, 1:][learned_BT[:, 1:]])


def _rate(recipe: Recipe, done: int) -> float:
    """Share of the learning rate for the update after `done` others."""
    if done < recipe.warmup:
        return (done + 1) / recipe.warmup
    progress = (done - recipe.warmup) / max(1, recipe.batches - recipe.warmup)
    return 1 - (1 - recipe.final_rate) * progress
