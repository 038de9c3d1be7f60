"""The report of a sweep: accuracy, paired gains over an equal number of updates, cost, curves."""

from hacpo.report.report import Report, sweep_report

__all__ = ["Report", "sweep_report"]
