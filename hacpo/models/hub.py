"""Models of the Hugging Face hub: which commit a name stands for, and its files in the cache.

What is cached is used as it is: only a model that is missing there is asked for over the network.
"""

import contextlib
import re
from pathlib import Path

import httpx
import huggingface_hub
from httpx import HTTPError
from huggingface_hub import constants
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
    XetDownloadError,
)

from hacpo.errors import DataError
from hacpo.models.folder import check_folder

_COMMIT = re.compile(r"[0-9a-f]{40}")
_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.py"]
_NOT_FILES = ["*/*", "consolidated*"]
_SECONDS = 10.0
_REFUSALS = (OSError, ValueError, HTTPError, RevisionResolutionError, XetDownloadError)
"""Of huggingface_hub; a model that is missing offline comes as one of these, too."""


def commit(model: str, revision: str | None) -> str:
    """The commit that a hub id and revision (None: main) stand for.

    Raises:
        DataError: not cached, and not to be had from the hub.
    """
    revision = revision or "main"
    if _COMMIT.fullmatch(revision):
        return revision
    ref = _cache(model) / "refs" / revision
    if ref.is_file():
        return ref.read_text(encoding="utf-8").strip()
    return _download_config(model, revision).parent.name


def snapshot(model: str, revision: str | None) -> Path:
    """The folder with a model's files at `commit`; downloaded if it is not cached.

    Raises:
        DataError: not to be had, or no safetensors model.
    """
    sha = commit(model, revision)
    folder = _cache(model) / "snapshots" / sha
    with contextlib.suppress(DataError):  # not there, or not all of it
        check_folder(model, folder)
        return folder
    try:
        _check_connection()
        path = huggingface_hub.snapshot_download(
            model, revision=sha, allow_patterns=_FILES, ignore_patterns=_NOT_FILES
        )
    except _REFUSALS as error:
        raise _unavailable(model, sha, error) from None
    check_folder(model, Path(path))
    return Path(path)


def config_folder(model: str, revision: str | None) -> Path:
    """A folder that holds at least a model's config.json.

    Raises:
        DataError: not cached, and not to be had from the hub.
    """
    cached = _cache(model) / "snapshots" / commit(model, revision)
    if (cached / "config.json").is_file():
        return cached
    return _download_config(model, cached.name).parent


def _cache(model: str) -> Path:
    return Path(constants.HF_HUB_CACHE) / f"models--{model.replace('/', '--')}"


def _download_config(model: str, revision: str) -> Path:
    try:
        _check_connection()
        path = huggingface_hub.hf_hub_download(
            model, "config.json", revision=revision, etag_timeout=_SECONDS
        )
    except _REFUSALS as error:
        raise _unavailable(model, revision, error) from None
    return Path(path)


def _check_connection() -> None:
    """Fail at once where there is no network: huggingface_hub tries for half a minute, loudly."""
    if not constants.HF_HUB_OFFLINE:
        httpx.head(constants.ENDPOINT, timeout=_SECONDS)


def _unavailable(model: str, revision: str, error: Exception) -> DataError:
    """What a person can do about each way in which the hub refuses."""
    where = f"agent model {model} at {revision}"
    if isinstance(error, GatedRepoError):  # before its base class, which means "not found"
        return DataError(
            f"{where}: is gated; accept its licence at https://huggingface.co/{model} and set "
            "HF_TOKEN to a token of that account"
        )
    if isinstance(error, RepositoryNotFoundError):
        return DataError(
            f"{where}: the hub knows no such model, or it is private; check the name, or set "
            "HF_TOKEN"
        )
    if isinstance(error, RevisionNotFoundError):
        return DataError(f"{where}: the hub has no such revision; check revision of this agent")
    if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
        return DataError(f"{where}: has no config.json on the hub; it is no model of transformers")
    offline = constants.HF_HUB_OFFLINE
    reason = "HF_HUB_OFFLINE is set" if offline else type(error).__name__
    return DataError(
        f"{where}: not in the Hugging Face cache and not to be had from the hub ({reason}); check "
        "the name and the connection, or give a local folder"
    )
