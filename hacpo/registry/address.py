"""Where a registry is: its URL, checked, and told to people without its password."""

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError, StatementError

from hacpo.errors import RegistryError, RegistryUnavailableError

_EXAMPLES = "sqlite:///folder/registry.db or postgresql://user@host/database"
_REASON_LIMIT = 500
"""PostgreSQL tells whole rows."""
_HINTS = {
    "unable to open database file": "check that its folder exists and is writable",
    "readonly database": "make the file and its folder writable",
    "file is not a database": "it is damaged or something else; give another path",
    "disk image is malformed": "it is damaged; restore a copy",
    "database is locked": "another process has held it too long",
    "database or disk is full": "free some space",
    "no password supplied": "set PGPASSWORD",
    "password authentication failed": "set PGPASSWORD to the password of this user",
}


def parse(url: str) -> URL:
    """The URL with its driver.

    Raises:
        RegistryError: not a URL, or not of a database that can hold a registry.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the text itself may hold a password
        raise RegistryError(f"the registry's URL is malformed: write {_EXAMPLES}") from None
    backend = parsed.drivername.partition("+")[0]
    if backend == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise RegistryError(
                "a registry in memory cannot be shared: write sqlite:///folder/registry.db"
            )
        return parsed.set(drivername="sqlite+pysqlite")
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise RegistryError(f"a registry cannot be kept in {backend!r}: write {_EXAMPLES}")


def shown(url: URL) -> str:
    """The URL for messages."""
    public = url.set(drivername=url.get_backend_name()).difference_update_query(["password"])
    return public.render_as_string(hide_password=True)


def explain(url: URL, error: SQLAlchemyError) -> RegistryError:
    """One line: which registry, what happened, what to do."""
    cause = error.orig if isinstance(error, StatementError) else None
    reason = " ".join(str(cause or error).split()).partition(" (Background on this")[0]
    hint = next((hint for symptom, hint in _HINTS.items() if symptom in reason), None)
    reason = _without_secrets(url, reason or type(error).__name__)[:_REASON_LIMIT]
    # Connections that break, locks, full disks: what a database says of its state, not of a query.
    kind = RegistryUnavailableError if isinstance(error, OperationalError) else RegistryError
    return kind(f"registry {shown(url)}: {reason}{f'; {hint}' if hint else ''}")


def _without_secrets(url: URL, text: str) -> str:
    """The password where a driver may tell it, and only there: it may be a common word."""
    in_query = url.query.get("password", ())
    secrets = [url.password, *([in_query] if isinstance(in_query, str) else in_query)]
    for secret in filter(None, secrets):
        for form in (":{}@", "password={}", "password='{}'"):
            text = text.replace(form.format(secret), form.format("***"))
    return text
