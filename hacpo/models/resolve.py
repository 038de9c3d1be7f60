"""From a config's model name to a folder; what is missing is built or fetched on the way."""

from collections.abc import Iterable
from pathlib import Path

from hacpo.models import packaged
from hacpo.models.embedded import PREFIX, build, ensure
from hacpo.models.folder import check_folder
from hacpo.models.hub import snapshot
from hacpo.models.identity import local_folder
from hacpo.models.importing import ensure_packaged
from hacpo.models.store import Progress


def resolve_model(
    model: str, revision: str | None, home: Path, progress: Progress | None = None
) -> str:
    """The folder of a model, for `from_pretrained`.

    Args:
        model: `embedded:NAME` (built if missing), `pypi:NAME` or a hub id (downloaded if missing),
            or a local folder.
        revision: of a hub id.
        home: where embedded agents and imported models lie.
        progress: gets lines while a model is built or imported.
    Raises:
        DataError: nothing there, or nothing that can be used.
        StorageError: `home` cannot be written.
    """
    if model.startswith(PREFIX):
        return str(build(model.removeprefix(PREFIX), home, progress=progress))
    if model.startswith(packaged.PREFIX):
        return str(ensure_packaged(model, home, progress))
    folder = local_folder(model)
    if folder is None:
        return str(snapshot(model, revision))
    check_folder(model, folder)
    return str(folder)


def ensure_models(models: Iterable[str], home: Path, progress: Progress | None = None) -> None:
    """Build or import the embedded and packaged ones among `models` that are missing.

    Raises:
        DataError: no such name, or not to be had.
        StorageError: `home` cannot be written.
    """
    models = list(models)
    for model in models:
        if model.startswith(packaged.PREFIX):
            ensure_packaged(model, home, progress)
    names = [model.removeprefix(PREFIX) for model in models if model.startswith(PREFIX)]
    ensure(names, home, progress)
