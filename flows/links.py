"""Where a sweep, a cell and a run can be looked at, and Prefect artifacts that say so."""

import json
import os
import re
import urllib.parse
import urllib.request
from collections.abc import Sequence

from prefect.utilities.urls import url_for

from hacpo.registry import CellView, SharedCurves, SweepView
from hacpo.tracking import curves_url
from hacpo.tracking.server import headers, public


def prefect_url(flow_run_id: str | None) -> str | None:
    """The page of a flow run."""
    return url_for("flow-run", flow_run_id) if flow_run_id else None


def mlflow_experiment_url(name: str, uri: str | None = None) -> str | None:
    """The runs of an experiment, None while there is none or no server that answers."""
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or ""
    if not uri.startswith("http"):
        return None
    asked = urllib.parse.urlencode({"experiment_name": name})
    server = public(uri).rstrip("/")
    address = f"{server}/api/2.0/mlflow/experiments/get-by-name?{asked}"
    try:
        request = urllib.request.Request(address, headers=headers(uri))
        with urllib.request.urlopen(request, timeout=5) as reply:
            experiment = json.load(reply)["experiment"]["experiment_id"]
    except (OSError, ValueError, KeyError):
        return None
    return f"{server}/#/experiments/{experiment}/runs"  # bare, it opens on GenAI traces


def artifact_key(*parts: str) -> str:
    """Prefect takes lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")


def cell_links(cell: CellView, experiment_url: str | None) -> dict[str, str]:
    """Markdown links to a cell's latest runs, by what they lead to."""
    links: dict[str, str] = {}
    if flow_run := prefect_url(cell.prefect_flow_run_id):
        links["Prefect"] = f"[run]({flow_run})"
    if experiment_url and cell.mlflow_run_id:
        run = f"{experiment_url}/{cell.mlflow_run_id}"
        links["MLflow"] = f"[curves]({run}?workflowType=machine_learning)"
    return links


def cell_table(view: SweepView, shared: Sequence[SharedCurves] = ()) -> str:
    """Every cell of a sweep as a Markdown table with links, after those to all their curves."""
    lines = []
    if view.mlflow_experiment_url:
        curves = curves_url(view.mlflow_experiment_url)
        lines += [f"[Rewards of all agents and methods]({curves}) in MLflow", ""]
    for other in shared:
        if other.experiment_url:
            curves = curves_url(other.experiment_url)
            lines += [f"[Those of {other.cells} cells shared with {other.sweep}]({curves})", ""]
    lines += ["| cell | state | steps | rollouts | links |", "|---|---|---|---|---|"]
    for cell in view.cells:
        links = " · ".join(cell_links(cell, view.mlflow_experiment_url).values())
        state = f"{cell.state}: {cell.error}" if cell.error else cell.state
        steps = f"{cell.steps_done}/{cell.steps_total or '?'}"
        columns = [cell.label, state.replace("|", "\\|"), steps, str(cell.rollouts), links]
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)
