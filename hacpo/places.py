"""Where things are: the home folder, a cell's folder, the registry; and what code this is.

Loads no torch: the status commands of the CLI need it.
"""

import os
from pathlib import Path


def home() -> Path:
    """Where agents, runs and the default registry live: HACPO_HOME, else `.hacpo`."""
    return Path(os.environ.get("HACPO_HOME") or ".hacpo").absolute()


def run_id_of(cell_key: str) -> str:
    """A cell's folder under `home()/runs`; attempts share it, so that one resumes another."""
    return cell_key[:16]


def run_folder(run_id: str) -> Path:
    return home() / "runs" / run_id


def default_registry_url() -> str:
    """HACPO_REGISTRY_URL, else a SQLite file under HACPO_HOME."""
    return os.environ.get("HACPO_REGISTRY_URL") or f"sqlite:///{home() / 'registry.db'}"


def code_version() -> str:
    """Version of the package, and the commit if it is a checkout."""
    from hacpo import __version__

    head = Path(__file__).parent.parent / ".git" / "HEAD"
    try:
        ref = head.read_text(encoding="utf-8").strip()
        if ref.startswith("ref: "):
            ref = (head.parent / ref[5:]).read_text(encoding="utf-8").strip()
    except OSError:
        return __version__
    return f"{__version__}+{ref[:12]}"
