"""A report where people look for it: a file, and the sweep's experiment in MLflow."""

from datetime import UTC, datetime
from pathlib import Path

from hacpo.errors import ConfigError, RegistryError
from hacpo.places import code_version
from hacpo.registry import Registry
from hacpo.report.curves import sweep_curves
from hacpo.report.page import page
from hacpo.report.report import Report, sweep_report
from hacpo.tracking.files import log_files


def publish(registry: Registry, sweep: str, uri: str) -> str:
    """Give MLflow the report of a sweep, as files of a run named `report` in its experiment.

    Publishing again replaces them.

    Args:
        registry: open.
        sweep: its name, which is the experiment's.
        uri: MLflow's address.
    Returns:
        The run's id.
    Raises:
        RegistryError: no such sweep.
        ServiceError: MLflow does not answer, or refuses.
    """
    report = sweep_report(registry, sweep)
    files = {
        "report.html": html_page(registry, report),
        "report.md": report.markdown(),
        "report.tex": report.latex(),
        "points.csv": report.csv(),
    }
    return log_files(uri, experiment=sweep, run_name="report", files=files)


def html_page(registry: Registry, report: Report) -> str:
    """The page of a report, with the sweep's training curves as far as there are any."""
    try:
        curves = sweep_curves(registry, report.sweep)
    except RegistryError:  # no step yet: the page lists every cell as missing
        curves = []
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return page(report, curves, f"Made {made} by hacpo {code_version()}.")


def write_page(registry: Registry, report: Report, path: Path) -> None:
    """Write the page into a file.

    Raises:
        ConfigError: it cannot be written.
    """
    text = html_page(registry, report)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}: choose another file") from error
