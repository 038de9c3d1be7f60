"""Exported sweeps as files: JSON, compressed if the name ends so; written whole or not at all."""

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from hacpo.errors import DataError, StorageError
from hacpo.ledger import atomic_path


def write_export(path: Path, data: dict[str, Any]) -> None:
    """
    Raises:
        StorageError: not writable.
    """
    body = json.dumps(data, allow_nan=False, indent=1).encode()
    if path.suffix == ".gz":
        body = gzip.compress(body, mtime=0)
    if not path.parent.is_dir():
        raise StorageError(f"{path}: there is no folder {path.parent}")
    with atomic_path(path) as temporary:
        temporary.write_bytes(body)


def read_export(path: Path) -> Any:
    """
    Raises:
        StorageError: not readable.
        DataError: not JSON.
    """
    try:
        body = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return json.loads(gzip.decompress(body) if path.suffix == ".gz" else body)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"{path} is no exported sweep: {error}") from None
