"""From a GGUF file to a model and tokenizer of transformers, with what its own reader gets wrong.

llama.cpp's files say how a vocabulary splits text and whether a text begins with <bos>;
transformers ignores both. Gemma without <bos> is a model that has lost its mind (perplexity 3400
instead of 17), and nothing else would tell.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedTokenizerFast
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from transformers.integrations.gguf.reader import read_gguf_metadata

from hacpo.errors import DataError
from hacpo.models.saving import no_progress_bars
from hacpo.models.store import Progress

_DIGIT_BY_DIGIT = frozenset(
    {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}
)
"""`tokenizer.ggml.pre` for: single digits first, then GPT-2's expression (llama-vocab.cpp)."""
_AS_GPT2 = frozenset({"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling"})
_STARTS_WITH_BOS = frozenset({"llama3", "llama-v3", "llama-bpe", "falcon3", "tekken", "pixtral"})
"""Byte-level vocabularies whose files may leave out that a text begins with <bos>."""
_EXTRA = ("gguf", "accelerate")


def load_gguf(file: Path, tell: Progress) -> tuple[Any, Any]:
    """Read a model's weights as float32 and build its tokenizer.

    Args:
        file: one whole GGUF file.
        tell: told about what may be wrong.
    Returns:
        (model of transformers, fast tokenizer).
    Raises:
        DataError: not a GGUF, of an architecture that transformers does not read, no language
            model, or packages are missing.
    """
    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise DataError(
            f"{file.name}: reading GGUF files needs {' and '.join(missing)}; "
            "install hacpo with all that it depends on"
        )
    try:
        facts, tensors = read_gguf_metadata(str(file), ("tokenizer.ggml.tokens",))
        tell("reading its tokenizer")
        tokenizer = _tokenizer(file, facts, tell)
        tell("reading its weights")
        model = _model(file)
    except DataError:
        raise
    except Exception as error:  # a damaged file: anything from struct.error to KeyError
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(f"{file.name}: not a GGUF file that can be read ({reason})") from error
    _mend_config(model, facts, is_tied="output.weight" not in tensors)
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise DataError(
            f"{file.name}: its vocabulary of {len(tokenizer)} tokens is larger than its "
            f"embedding of {rows} rows; the file is damaged"
        )
    return model, tokenizer


def _model(file: Path) -> Any:
    with no_progress_bars(), _no_tqdm():
        model, report = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
        )
    absent = sorted({*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])})
    if absent:  # they would stay random numbers
        raise DataError(
            f"{file.name}: {len(absent)} weights of a {model.config.model_type} model are not in "
            f"it, such as {absent[0]}; use another conversion of this model"
        )
    model.config.name_or_path = ""
    return model


def _mend_config(model: Any, facts: dict[str, Any], *, is_tied: bool) -> None:
    """Round what the file stores as float32, name every end token, keep the tie."""
    for key, value in model.config.to_dict().items():
        if isinstance(value, float) and key.endswith(("_eps", "epsilon")):
            setattr(model.config, key, float(str(np.float32(value))))
    if is_tied != bool(model.config.tie_word_embeddings):
        raise DataError(f"output and input embedding: the file says tied {is_tied}, the model not")
    ends = (facts.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot"))
    found = list(dict.fromkeys(int(end) for end in ends if end is not None))
    if len(found) > 1:
        model.generation_config.eos_token_id = found


def _tokenizer(file: Path, facts: dict[str, Any], tell: Progress) -> PreTrainedTokenizerFast:
    """The file's tokenizer with its own way to begin a text and to split it.

    Saved as what it is, not under the model's usual class: such classes rebuild parts of
    themselves when they are loaded.
    """
    found = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokens = facts["tokenizer.ggml.tokens"]
    backend = _without_strangers(found.backend_tokenizer, len(tokens))
    kind, pre = facts.get("tokenizer.ggml.model"), facts.get("tokenizer.ggml.pre", "default")
    if kind == "gpt2" and pre in _DIGIT_BY_DIGIT:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    elif kind == "gpt2" and pre not in GGUF_PRE_TOKENIZER_SPLITS and pre not in _AS_GPT2:
        tell(f"its way to split text ({pre!r}) is not known here: GPT-2's is used, check it")
    names = {"bos": "bos", "eos": "eos", "padding": "pad", "unknown": "unk"}
    ids = {ours: facts.get(f"tokenizer.ggml.{theirs}_token_id") for theirs, ours in names.items()}
    specials = {
        f"{name}_token": AddedToken(tokens[number], normalized=False, special=True)
        for name, number in ids.items()
        if number is not None
    }
    default = kind == "llama" or (kind == "gpt2" and pre in _STARTS_WITH_BOS)
    bos = ids["bos"]
    if bos is not None and facts.get("tokenizer.ggml.add_bos_token", default):
        backend.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]} $A",
            pair=f"{tokens[bos]} $A {tokens[bos]}:1 $B:1",
            special_tokens=[(tokens[bos], bos)],
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=found.chat_template,
        model_max_length=facts.get(f"{facts['general.architecture']}.context_length"),
        clean_up_tokenization_spaces=False,
        **specials,
    )


def _without_strangers(backend: Tokenizer, size: int) -> Tokenizer:
    """Without special tokens that a class brings along (GPT-2's into Llama 3's vocabulary)."""
    if backend.get_vocab_size() <= size:
        return backend
    parts = json.loads(backend.to_str())
    parts["added_tokens"] = [token for token in parts["added_tokens"] if token["id"] < size]
    return Tokenizer.from_str(json.dumps(parts))


@contextmanager
def _no_tqdm() -> Iterator[None]:
    """The GGUF reader shows its own bar, and warns that weights are unpacked: they shall be."""
    from transformers import modeling_gguf_pytorch_utils as reader

    level, bar = logging.getLogger("transformers").level, reader.tqdm
    reader.tqdm = lambda items, *_, **__: items
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        yield
    finally:
        reader.tqdm = bar
        logging.getLogger("transformers").setLevel(level)
