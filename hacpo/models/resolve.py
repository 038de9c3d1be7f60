"""From a config's model name to a folder; embedded agents are built on the way."""

from collections.abc import Iterable
from pathlib import Path

from hacpo.models.embedded import PREFIX, Progress, build, ensure
from hacpo.models.folder import check_folder
from hacpo.models.hub import snapshot
from hacpo.models.identity import local_folder


def resolve_model(
    model: str, revision: str | None, home: Path, progress: Progress | None = None
) -> str:
    """The folder of a model, for `from_pretrained`.

    Args:
        model: `embedded:NAME` (built if missing), a local folder or a hub id (downloaded if
            missing).
        revision: of a hub id.
        home: where embedded agents lie.
        progress: gets lines while an agent is built.
    Raises:
        DataError: nothing there, or nothing that can be used.
        StorageError: `home` cannot be written.
    """
    if model.startswith(PREFIX):
        return str(build(model.removeprefix(PREFIX), home, progress=progress))
    folder = local_folder(model)
    if folder is None:
        return str(snapshot(model, revision))
    check_folder(model, folder)
    return str(folder)


def ensure_models(models: Iterable[str], home: Path, progress: Progress | None = None) -> None:
    """Build the embedded agents among `models` that are missing; see `ensure`."""
    names = [model.removeprefix(PREFIX) for model in models if model.startswith(PREFIX)]
    ensure(names, home, progress)
