"""A check: one line that says ok or what to do, within a few seconds, never a traceback."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from hacpo.errors import HacpoError

SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Check:
    """What was found."""

    name: str
    ok: bool
    text: str
    """What is there, or what to do."""


Finding = str | tuple[bool, str]
"""A text alone is good news."""


def run_check(name: str, look: Callable[[], Finding], seconds: float = SECONDS) -> Check:
    """Run `look` in a thread of its own; what it raises, and its silence, are what to do."""
    found: list[Check] = []

    def work() -> None:
        try:
            finding = look()
            is_ok, text = (True, finding) if isinstance(finding, str) else finding
        except HacpoError as error:
            is_ok, text = False, str(error)
        except Exception as error:  # of any package that is asked: a finding, not a traceback
            is_ok, text = False, f"{type(error).__name__}: {error}"
        found.append(Check(name, is_ok, " ".join(text.split())))

    thread = threading.Thread(target=work, name=f"doctor {name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if found:
        return found[0]
    return Check(name, False, f"no answer within {seconds:g} s; look at what it depends on")
