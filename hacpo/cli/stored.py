"""The registry and run folders as a command finds them; looking never creates them."""

from pathlib import Path
from typing import TYPE_CHECKING

from hacpo.errors import DataError, RegistryError
from hacpo.places import default_registry_url, home, run_folder, run_id_of

if TYPE_CHECKING:
    from hacpo.registry import Registry


def find_registry() -> "Registry | None":
    """The registry, open; None if there is none yet.

    Raises:
        RegistryError: it cannot be reached or is of a newer schema.
    """
    from hacpo.registry import Registry
    from hacpo.registry.address import parse

    url = default_registry_url()
    address = parse(url)
    if address.get_backend_name() == "sqlite" and not Path(address.database or "").exists():
        return None
    return Registry.open(url)


def open_registry() -> "Registry":
    """As `find_registry`, for commands that need one.

    Raises:
        RegistryError: also if there is none yet.
    """
    registry = find_registry()
    if registry is None:
        raise RegistryError(
            f"nothing is recorded at {home()} yet: start with `hacpo run CONFIG`, or set "
            "HACPO_HOME or HACPO_REGISTRY_URL to where it is"
        )
    return registry


def find_run(name: str) -> Path:
    """The folder of a run.

    Args:
        name: the folder itself, or a cell's label, key or start of a key.
    Raises:
        RegistryError: no such cell.
        DataError: its files are not on this machine.
    """
    if (Path(name) / "config.json").is_file():
        return Path(name)
    with open_registry() as registry:
        cell = registry.cell(name).cell
    folder = run_folder(run_id_of(cell.key))
    if not (folder / "config.json").is_file():
        where = f" (it ran on {cell.host})" if cell.host else ""
        raise DataError(f"{cell.label} has no files at {folder}{where}: it has not begun here")
    return folder
