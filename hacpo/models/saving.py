"""Writing an ordinary model folder: safetensors, config, tokenizer."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from hacpo.errors import DataError


def save_model(model: Any, tokenizer: Any, folder: Path, dtype: str | None = None) -> None:
    """Write a folder that `from_pretrained` loads and that others may read.

    Args:
        model: of transformers.
        tokenizer: its tokenizer.
        folder: gets the files.
        dtype: of the weights written, such as `bfloat16`; None: as they are.
    """
    if dtype is not None:
        model.to(getattr(torch, dtype))
    with no_progress_bars():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    mode = (folder / "tokenizer_config.json").stat().st_mode
    for file in folder.iterdir():
        file.chmod(mode)  # safetensors keeps weights from all other users


def load_any(folder: Path) -> tuple[Any, Any]:
    """Model (in the dtype of its file) and tokenizer of a folder of transformers.

    Raises:
        DataError: what transformers refuses, or weights that are not there.
    """
    try:
        with no_progress_bars():
            model, report = AutoModelForCausalLM.from_pretrained(
                folder, dtype="auto", output_loading_info=True, use_safetensors=True
            )
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{folder}: cannot be loaded: {reason}") from error
    absent = sorted(report["missing_keys"])
    if absent:  # they would stay random numbers
        raise DataError(
            f"{folder}: {len(absent)} weights are missing, such as {absent[0]}; copy it again"
        )
    return model, tokenizer


@contextlib.contextmanager
def no_progress_bars() -> Iterator[None]:
    """transformers shows a bar for each model it reads or writes: too many for a run's log."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
