"""Looking at a registry without making or upgrading one."""

from pathlib import Path

from hacpo.registry.database import Database
from hacpo.registry.models import SCHEMA


def look(url: str) -> str:
    """One line: where it is and which schema it has.

    Raises:
        RegistryError: not reachable, of a newer schema, or not a registry.
    """
    database = Database(url)
    try:
        if database.is_sqlite and not Path(database.url.database or "").is_file():
            return f"{database.name} (made on first use)"
        with database.reading() as connection:
            found = database.schema(connection)
    finally:
        database.close()
    if found is None:
        return f"{database.name}, empty (filled on first use)"
    old = "" if found == SCHEMA else f" (upgraded to {SCHEMA} on first use)"
    return f"{database.name}, schema {found}{old}"
