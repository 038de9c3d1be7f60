"""The registry and the servers of MLflow and Prefect: whether they answer, and their versions."""

import importlib.metadata
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from urllib.parse import urlsplit

from hacpo.doctor.check import Check, Finding, run_check
from hacpo.places import default_registry_url
from hacpo.tracking.server import REFUSED, basic, check_scheme, headers, public, refusal

SECONDS = 4.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_START = "start it with `bash infra/quickstart.sh`"


def service_checks(tracking_uri: str | None) -> Iterator[Check]:
    """Registry, MLflow and Prefect, each where the environment or `tracking_uri` says."""
    yield run_check("registry", _registry)
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or ""
    yield run_check("mlflow server", partial(_mlflow, uri))
    yield run_check("prefect server", partial(_prefect, os.environ.get("PREFECT_API_URL", "")))


def _registry() -> Finding:
    from hacpo.registry.look import look

    return look(default_registry_url())


def _mlflow(uri: str) -> Finding:
    if not uri:
        return "none (MLFLOW_TRACKING_URI is not set): metrics stay in the run's folder"
    check_scheme(uri)
    if urlsplit(uri).scheme == "sqlite":
        return f"{uri}, a file"
    try:
        version = _get(f"{public(uri).rstrip('/')}/version", headers(uri))
    except (OSError, ValueError) as error:
        if _refused(error):
            return False, refusal(uri)
        reason = getattr(error, "reason", error)
        return False, f"{public(uri)} does not answer ({reason}): {_START}, or pass --offline"
    return _compared(public(uri), version, "mlflow")


def _prefect(api: str) -> Finding:
    if not api:
        return "none (PREFECT_API_URL is not set): only `hacpo run` works, no grids"
    try:
        version = json.loads(_get(f"{api.rstrip('/')}/admin/version", _prefect_headers()))
    except (OSError, ValueError) as error:
        if _refused(error):
            return False, f"{public(api)} refuses these credentials: set PREFECT_API_AUTH_STRING"
        reason = getattr(error, "reason", error)
        return False, f"{public(api)} does not answer ({reason}): {_START}"
    return _compared(public(api), str(version), "prefect")


def _compared(where: str, server: str, package: str) -> Finding:
    client = importlib.metadata.version(package)
    if server.partition(".")[0] != client.partition(".")[0]:
        return False, f"{where} runs {server:.40}, the client here is {client}: use one of both"
    return f"{where}, version {server}"


def _prefect_headers() -> dict[str, str]:
    """Who asks, as Prefect's own client tells it."""
    if credentials := os.environ.get("PREFECT_API_AUTH_STRING"):
        return {"Authorization": basic(credentials)}
    key = os.environ.get("PREFECT_API_KEY")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _refused(error: Exception) -> bool:
    return isinstance(error, urllib.error.HTTPError) and error.code in REFUSED


def _get(url: str, headers: dict[str, str]) -> str:
    """A short text; what is on this machine is never asked through a proxy."""
    is_here = urlsplit(url).hostname in _LOOPBACK
    proxies = urllib.request.ProxyHandler({} if is_here else None)
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.build_opener(proxies).open(request, timeout=SECONDS) as reply:
        return str(reply.read(200).decode("utf-8", "replace")).strip()
