"""A GGUF file of a tiny Llama with a byte-level vocabulary, as llama.cpp would write it."""

from pathlib import Path

import gguf
import numpy as np
from transformers.convert_slow_tokenizer import bytes_to_unicode

SPECIALS = ["<unk>", "<s>", "</s>"]
MERGED = ["12", "ab"]
WIDTH, HEADS, INNER = 16, 2, 32


def write_gguf(
    file: Path, *, pre: str = "smollm", bos: bool | None = True, seed: int = 0, leave_out: str = ""
) -> Path:
    """Write one layer of random weights; `leave_out` names a tensor that is not written."""
    file.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    tokens = [*SPECIALS, *bytes_to_unicode().values(), *MERGED]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIALS) + [1] * (len(tokens) - len(SPECIALS)))
    writer.add_token_merges([" ".join(token) for token in MERGED])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if bos is not None:
        writer.add_add_bos_token(bos)
    random = np.random.default_rng(seed)
    for name, shape in _shapes(len(tokens)).items():
        if name != leave_out:
            writer.add_tensor(name, random.normal(0, 0.1, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _shapes(vocabulary: int) -> dict[str, tuple[int, ...]]:
    square = ("attn_q", "attn_k", "attn_v", "attn_output")
    return {
        "token_embd.weight": (vocabulary, WIDTH),
        "output_norm.weight": (WIDTH,),
        "blk.0.attn_norm.weight": (WIDTH,),
        "blk.0.ffn_norm.weight": (WIDTH,),
        **{f"blk.0.{name}.weight": (WIDTH, WIDTH) for name in square},
        "blk.0.ffn_gate.weight": (INNER, WIDTH),
        "blk.0.ffn_up.weight": (INNER, WIDTH),
        "blk.0.ffn_down.weight": (WIDTH, INNER),
    }
