"""What identifies a model: a recipe's hash, a folder's content, or a hub id at its revision.

Loads neither torch nor transformers: grids and status commands ask for identities.
"""

import contextlib
import hashlib
import json
import os
import re
import time
from pathlib import Path

from hacpo.errors import DataError
from hacpo.models import hub, packaged
from hacpo.models.embedded import PREFIX
from hacpo.models.folder import check_folder
from hacpo.models.imported import import_hash, packaged_fingerprint
from hacpo.models.recipes import recipe_hash
from hacpo.places import is_path

_CONTENT = re.compile(
    r"(generation_|tokenizer_|preprocessor_)?config\.json|tokenizer\.(json|model)|vocab\.(json|txt)"
    r"|merges\.txt|added_tokens\.json|special_tokens_map\.json|spiece\.model"
    r"|chat_template\.(jinja|json)|.*\.safetensors|.*\.safetensors\.index\.json"
    r"|.*\.py"  # run under trust_remote_code
)
"""Files that decide what a model does."""
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_SETTLED_SECONDS = 2.0


def model_identity(model: str, revision: str | None, home: Path) -> str:
    """The same string for the same model, another for any other.

    `embedded:a@HASH`, `pypi:NAME@HASH` (without downloading it), `local:SHA256` over the folder's
    content, or `hub:org/name@COMMIT`.

    Args:
        model: `embedded:NAME`, `pypi:NAME`, a local folder or a hub id.
        revision: of a hub id; None is main.
        home: where hashes of large files are remembered.
    Raises:
        DataError: nothing there, or nothing that can be used.
    """
    if model.startswith(PREFIX):
        return f"{model}@{recipe_hash(model.removeprefix(PREFIX))[:12]}"
    if model.startswith(packaged.PREFIX):
        return f"{model}@{import_hash(packaged_fingerprint(model))}"
    folder = local_folder(model)
    if folder is None:
        return f"hub:{model}@{hub.commit(model, revision)}"
    check_folder(model, folder)
    return f"local:{content_hash(folder, home)}"


def model_label(model: str) -> str:
    """A short name for tables: what follows `embedded:` or `pypi:`, else a path's or id's end."""
    if model.startswith((PREFIX, packaged.PREFIX)):
        return model.partition(":")[2]
    folder = Path(model).expanduser()
    return folder.name or folder.resolve().name


def local_folder(model: str) -> Path | None:
    """The folder that `model` names, or None if it is a hub id.

    What starts with `.`, `/` or `~`, or exists as a folder, is a path.

    Raises:
        DataError: neither a path nor a hub id.
    """
    if model.lower().endswith(".gguf"):
        raise DataError(
            f"agent model {model}: a GGUF file cannot be trained as it is; run `hacpo models "
            "import` on it and give the folder that this names"
        )
    if is_path(model, Path()):
        return Path(model).expanduser()
    if _HUB_ID.fullmatch(model):
        return None
    raise DataError(
        f"agent model {model!r} is neither embedded:NAME or pypi:NAME, nor a folder, nor a hub id "
        f"such as org/name; a folder here is written ./{model}"
    )


def is_on_hub(model: str) -> bool:
    """Whether a model is named by its hub id.

    Raises:
        DataError: as `local_folder`.
    """
    return not model.startswith((PREFIX, packaged.PREFIX)) and local_folder(model) is None


def content_hash(folder: Path, home: Path) -> str:
    """sha256 over names and contents; files that have not changed are not read again."""
    folder = folder.resolve()
    notes = home / "identities" / f"{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}.json"
    known = _read_notes(notes)
    files: dict[str, list[int | str]] = {}
    try:
        for file in sorted(folder.iterdir()):
            if _CONTENT.fullmatch(file.name):
                files[file.name] = _hashed(file, known.get(file.name))
    except OSError as error:
        raise DataError(f"agent model {folder}: cannot be read: {error.strerror}") from None
    if files != known:
        _write_notes(notes, files)
    digest = hashlib.sha256()
    for name, (*_, content) in files.items():
        digest.update(f"{name} {content}\n".encode())
    return digest.hexdigest()


def _hashed(file: Path, known: list[int | str] | None) -> list[int | str]:
    """[size, mtime, inode, sha256] of a file, from `known` if the first three are the same."""
    stat = file.stat()
    facts: list[int | str] = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
    # A file written just now may change again without a new time stamp.
    settled = time.time() - stat.st_mtime > _SETTLED_SECONDS
    if settled and known is not None and known[:3] == facts:
        return known
    with open(file, "rb") as stream:
        return [*facts, hashlib.file_digest(stream, "sha256").hexdigest()]


def _read_notes(notes: Path) -> dict[str, list[int | str]]:
    try:
        known = json.loads(notes.read_text(encoding="utf-8"))
        return {str(name): list(facts) for name, facts in known.items()}
    except (OSError, ValueError, AttributeError, TypeError):  # absent or damaged
        return {}


def _write_notes(notes: Path, files: dict[str, list[int | str]]) -> None:
    """Only a saving of time: where it cannot be written, folders are hashed again."""
    part = notes.with_suffix(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):
        notes.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(files), encoding="utf-8")
        os.replace(part, notes)
