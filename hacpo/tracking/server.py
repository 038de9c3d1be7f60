"""Where MLflow is and whether it answers, without importing mlflow."""

import http.client
import urllib.error
import urllib.request
from urllib.parse import urlsplit, urlunsplit

from hacpo.errors import ConfigError, ServiceError


def check_server(uri: str, timeout: float = 5) -> None:
    """Ask the server at `uri` whether it is well; a sqlite:/// file needs no server.

    Raises:
        ConfigError: neither an http(s):// nor a sqlite:/// address.
        ServiceError: nothing answers there, or not as MLflow does.
    """
    check_scheme(uri)
    if urlsplit(uri).scheme == "sqlite":
        return
    health = public(uri).rstrip("/") + "/health"
    try:
        with urllib.request.urlopen(health, timeout=timeout) as reply:
            reply.read(64)
    except urllib.error.HTTPError as error:
        raise ServiceError(
            f"{public(uri)} answers HTTP {error.code} instead of MLflow's health: "
            "check tracking.uri or pass --offline"
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ServiceError(
            f"MLflow does not answer at {public(uri)}: start it with "
            "`bash infra/quickstart.sh` or pass --offline"
        ) from error


def check_scheme(uri: str) -> None:
    """Refuse what MLflow may know but this project does not support, with ConfigError."""
    if urlsplit(uri).scheme not in ("http", "https", "sqlite"):
        raise ConfigError(
            f"tracking uri {public(uri)!r}: use http://HOST:PORT, https://HOST or sqlite:///FILE"
        )


def url(uri: str, experiment_id: str, run_id: str) -> str:
    """The run's page; a sqlite:/// file has none, so that is returned as it is."""
    if urlsplit(uri).scheme == "sqlite":
        return uri
    return f"{public(uri).rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}"


def public(uri: str) -> str:
    """The address without the user and password that it may hold."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
