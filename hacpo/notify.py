"""Telling people through a webhook (Slack, Mattermost, Teams, your own) how a sweep goes."""

import json
import os
import urllib.request

from hacpo.errors import ServiceError
from hacpo.registry import SweepView

WEBHOOK = "HACPO_WEBHOOK_URL"
_MOST_FAILURES = 3


def notify(view: SweepView, what: str) -> bool:
    """Post `{"text": ..., "sweep": ..., "state": ..., ...}` to HACPO_WEBHOOK_URL, if it is set.

    Args:
        view: the sweep.
        what: failing, failed, done or cancelled.
    Returns:
        Whether somebody was told.
    Raises:
        ServiceError: the address does not take it; its URL, which may be a secret, is not told.
    """
    url = os.environ.get(WEBHOOK)
    if not url:
        return False
    facts = {"text": text(view, what), "sweep": view.name, "state": what, "owner": view.owner}
    counts = {"done": view.counts.done, "failed": view.counts.failed, "cells": view.counts.total}
    body = json.dumps(facts | counts).encode()
    try:
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10):
            return True
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        told = f"{WEBHOOK} was not told that sweep {view.name} is {what}"
        raise ServiceError(f"{told}: {reason}") from None


def text(view: SweepView, what: str) -> str:
    """`sweep x of ann: failing; 3 of 12 cells done, 1 failed: gspo a s0 (oom: ...)`."""
    counts = view.counts
    owner = f" of {view.owner}" if view.owner else ""
    told = f"sweep {view.name}{owner}: {what}; {counts.done} of {counts.total} cells done"
    failed = [cell for cell in view.cells if cell.state == "failed"]
    if failed:
        reasons = [f"{c.label} ({c.error_kind}: {c.error})" for c in failed[:_MOST_FAILURES]]
        more = f" and {len(failed) - len(reasons)} more" if len(failed) > len(reasons) else ""
        told += f", {len(failed)} failed: {'; '.join(reasons)}{more}"
    return told
