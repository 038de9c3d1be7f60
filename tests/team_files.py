"""Reading the files of infra/ that no program here runs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

INFRA = Path(__file__).parents[1] / "infra"
COMPOSE: dict[str, Any] = yaml.safe_load((INFRA / "compose.yaml").read_text())
UNIT = INFRA / "systemd" / "hacpo-worker@.service"
SECRETS = {
    "POSTGRES_PASSWORD",
    "PREFECT_DB_PASSWORD",
    "MLFLOW_DB_PASSWORD",
    "PGPASSWORD",
    "PREFECT_API_AUTH_STRING",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_FLASK_SERVER_SECRET_KEY",
    "S3_ACCESS_KEY",
    "S3_SECRET_KEY",
}


def example() -> dict[str, str]:
    lines = (INFRA / "env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def section(title: str) -> set[str]:
    """The variables between a heading of env.example and the next."""
    text = (INFRA / "env.example").read_text()
    found = re.search(rf"^# --- {title}.*?---$(.*?)(?=^# ---|\Z)", text, re.M | re.S)
    assert found is not None, title
    return set(re.findall(r"^(\w+)=", found.group(1), re.M))


def references(text: str) -> set[str]:
    return set(re.findall(r"\$\{(\w+)", text))


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((INFRA / "k8s").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield path.name, document


def pinned(image: str) -> bool:
    """A tag that is not moved: full version, release or digest."""
    name, _, tag = image.rpartition(":")
    return bool(name) and bool(re.search(r"\d+\.\d+|\d{4}-\d\d-\d\d", tag))
