"""MLflow: what a run tells it, kept in the run's folder until it has arrived."""

from hacpo.tracking.sender import sync
from hacpo.tracking.server import check_server, url
from hacpo.tracking.tracker import Tracker
from hacpo.tracking.view import curves_url

__all__ = ["Tracker", "check_server", "curves_url", "sync", "url"]
