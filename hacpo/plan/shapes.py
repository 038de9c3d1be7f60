"""Shapes of the models in the paper's tables, so that a plan needs no hub.

What decides their number of weights, which `tests/unit/test_tables.py` compares with what the
models' cards say, and how many tokens they take. Weights are never made from these.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

_QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151_936,
    "head_dim": 128,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": True,
}
_QWEN3_1_7B = _QWEN3 | {
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
}
_QWEN3_4B = _QWEN3 | {
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
}
_QWEN3_8B = _QWEN3 | {
    "hidden_size": 4096,
    "intermediate_size": 12_288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "tie_word_embeddings": False,
}
_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128_256,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": True,
}
SHAPES: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-1.7B-Base": _QWEN3_1_7B,
    "Qwen/Qwen3-4B": _QWEN3_4B | {"max_position_embeddings": 40_960},
    "Qwen/Qwen3-4B-Base": _QWEN3_4B,
    "Qwen/Qwen3-4B-Instruct-2507": _QWEN3_4B | {"max_position_embeddings": 262_144},
    "Qwen/Qwen3-8B-Base": _QWEN3_8B,
    "meta-llama/Llama-3.2-1B-Instruct": _LLAMA
    | {
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "head_dim": 64,
    },
    "meta-llama/Llama-3.2-3B-Instruct": _LLAMA
    | {
        "hidden_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "head_dim": 128,
    },
}


def write_shape(model: str, below: Path) -> Path | None:
    """A folder with the config of a model and nothing else; None if its shape is not known."""
    if model not in SHAPES:
        return None
    content = json.dumps(SHAPES[model])
    folder = below / hashlib.sha256(content.encode()).hexdigest()[:16]  # one for each shape
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(content, encoding="utf-8")
    return folder
