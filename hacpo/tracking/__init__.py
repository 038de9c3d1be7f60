"""MLflow: what a run tells it, kept in the run's folder until it has arrived."""

from hacpo.tracking.sender import sync
from hacpo.tracking.server import check_server, url
from hacpo.tracking.tracker import Tracker

__all__ = ["Tracker", "check_server", "sync", "url"]
