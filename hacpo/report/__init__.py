"""The table of a sweep: accuracy before and after, gain over an equal number of updates, cost."""

from hacpo.report.report import Report, sweep_report

__all__ = ["Report", "sweep_report"]
