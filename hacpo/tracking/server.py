"""Where MLflow is and whether it answers, without importing mlflow."""

import base64
import http.client
import os
import urllib.error
import urllib.request
from urllib.parse import unquote, urlsplit, urlunsplit

from hacpo.errors import ConfigError, ServiceError

REFUSED = (401, 403)
"""HTTP: the server wants credentials, or others."""


def check_server(uri: str, timeout: float = 5) -> None:
    """Ask the server at `uri` whether it takes us; a sqlite:/// file needs no server.

    Raises:
        ConfigError: neither an http(s):// nor a sqlite:/// address.
        ServiceError: nothing answers there, or not as MLflow does, or it refuses our credentials.
    """
    check_scheme(uri)
    if urlsplit(uri).scheme == "sqlite":
        return
    # Not /health, which answers everybody.
    request = urllib.request.Request(f"{public(uri).rstrip('/')}/version", headers=headers(uri))
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            reply.read(64)
    except urllib.error.HTTPError as error:
        if error.code in REFUSED:
            raise ServiceError(refusal(uri)) from None
        raise ServiceError(
            f"{public(uri)} answers HTTP {error.code} instead of MLflow's version: "
            "check tracking.uri or pass --offline"
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ServiceError(
            f"MLflow does not answer at {public(uri)}: start it with "
            "`bash infra/quickstart.sh` or pass --offline"
        ) from error


def headers(uri: str) -> dict[str, str]:
    """What tells MLflow who asks: as its own client, from the address or the environment."""
    parts, environment = urlsplit(uri), os.environ
    user = unquote(parts.username or "") or environment.get("MLFLOW_TRACKING_USERNAME")
    password = unquote(parts.password or "") or environment.get("MLFLOW_TRACKING_PASSWORD")
    if user and password:
        return {"Authorization": basic(f"{user}:{password}")}
    token = environment.get("MLFLOW_TRACKING_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def basic(user_and_password: str) -> str:
    """The header's value of HTTP's basic authentication."""
    return f"Basic {base64.b64encode(user_and_password.encode()).decode()}"


def refusal(uri: str) -> str:
    """What to do about a 401 or 403."""
    return (
        f"MLflow at {public(uri)} refuses these credentials: set MLFLOW_TRACKING_USERNAME and "
        "MLFLOW_TRACKING_PASSWORD (a team's: source HACPO_HOME/env)"
    )


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
