"""Where things are: the home folder, a cell's folder, the registry; and what code this is.

Loads no torch: the status commands of the CLI need it.
"""

import os
import subprocess
from functools import lru_cache
from pathlib import Path


def home() -> Path:
    """Where agents, runs and the default registry live: HACPO_HOME, else `.hacpo`."""
    return Path(os.environ.get("HACPO_HOME") or ".hacpo").absolute()


def run_id_of(cell_key: str) -> str:
    """A cell's folder under `home()/runs`; attempts share it, so that one resumes another."""
    return cell_key[:16]


def run_folder(run_id: str) -> Path:
    """Under HACPO_RUNS, else `home()/runs`; machines that share it resume each other's cells."""
    return Path(os.environ.get("HACPO_RUNS") or home() / "runs").absolute() / run_id


def data_folder(given: Path | None = None) -> Path:
    """The folder of problem files: the one given, else HACPO_DATA, else `home()/data`."""
    if given is not None:
        return given
    named = os.environ.get("HACPO_DATA")
    return Path(named).expanduser() if named else home() / "data"


def default_registry_url() -> str:
    """HACPO_REGISTRY_URL, else a SQLite file under HACPO_HOME."""
    return os.environ.get("HACPO_REGISTRY_URL") or f"sqlite:///{home() / 'registry.db'}"


@lru_cache(maxsize=1)
def code_version() -> str:
    """Version of the package and, in a checkout, the commit (`-dirty` if files were changed)."""
    from hacpo import __version__

    checkout = Path(__file__).parent.parent
    if not (checkout / ".git").exists():
        return __version__
    describe = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        found = subprocess.run([*describe, "--exclude=*"], capture_output=True, text=True)
    except OSError:  # no git here
        return __version__
    commit = found.stdout.strip()
    return f"{__version__}+{commit}" if commit else __version__


def is_path(model: str, base: Path) -> bool:
    """Whether `model`, said in the folder `base`, names a folder rather than a hub id."""
    return model.startswith((".", "/", "~")) or bool(model and (base / model).is_dir())
