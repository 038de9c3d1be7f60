"""Whether a folder holds a model that can be used."""

import json
from pathlib import Path

from hacpo.errors import DataError

_INDEX = "model.safetensors.index.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


def check_folder(model: str, folder: Path) -> None:
    """Refuse a folder that holds no usable model: config and all safetensors weights.

    Raises:
        DataError: what is missing and what to do.
    """
    if not folder.is_dir():
        raise DataError(f"agent model {model}: no such folder; check the path in agents")
    if not (folder / "config.json").is_file():
        if any(".gguf" in file.name for file in folder.iterdir()):
            raise DataError(
                f"agent model {model}: holds a GGUF file; run `hacpo models import {model}` and "
                "give the folder that this names"
            )
        raise DataError(
            f"agent model {model}: has no config.json; give a folder written by save_pretrained"
        )
    names = {file.name for file in folder.iterdir()}
    if not any(name.endswith(".safetensors") for name in names):
        pickles = sorted(name for name in names if name.endswith(_PICKLES))
        found = f"only pickle weights ({pickles[0]})" if pickles else "no weights"
        raise DataError(
            f"agent model {model}: holds {found}; safetensors only: "
            "load it elsewhere and save_pretrained it again"
        )
    if _INDEX in names:
        absent = sorted(_shards(model, folder / _INDEX) - names)
        if absent:
            raise DataError(
                f"agent model {model}: {len(absent)} weight files are missing, such as "
                f"{absent[0]}; copy the folder again"
            )


def _shards(model: str, index: Path) -> set[str]:
    try:
        return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"agent model {model}: {index.name} is damaged; copy it again") from None
