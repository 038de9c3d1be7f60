"""Writing an ordinary model folder: safetensors, config, tokenizer."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers.utils import logging


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a folder that `from_pretrained` loads and that others may read."""
    with no_progress_bars():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    mode = (folder / "config.json").stat().st_mode
    for file in folder.iterdir():
        file.chmod(mode)  # safetensors keeps weights from all other users


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
