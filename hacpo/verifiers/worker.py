"""The process that grades: JSON lines on stdin and stdout, started and killed by `pool`.

    python -m hacpo.verifiers.worker

The first line is a `Setup`; the reply is `{}` or `{"error": ...}`. Every further line is a list of
[id, problem, answer, response]; each row is answered by its own line [reward, outcome, reason].
A response is only ever text: nothing of it is evaluated.
"""

import ctypes
import importlib
import json
import math
import os
import queue
import resource
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hacpo.verifiers.boxed import grade_boxed
from hacpo.verifiers.grades import Grade, judged, ungraded
from hacpo.verifiers.last_number import grade_last_number
from hacpo.verifiers.marker import grade_marker
from hacpo.verifiers.strict import grade_strict

MAX_REASON_CHARS = 300
_PR_SET_PDEATHSIG = 1

Row = tuple[str, str, str, str]
"""Id, problem, answer, response."""
Grader = Callable[[Row], Grade]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a worker grades with; travels as JSON."""

    type: str
    marker: str
    reward: str | None
    """`module:function` of type custom."""
    folder: str | None
    """Where that module is looked for first; None: the working directory."""
    strict: bool
    """math: verl's boxed match in place of algebra."""
    memory_bytes: int


def main() -> None:
    """Serve until stdin ends."""
    # Own descriptors: what a reward prints goes to stderr, what it reads from stdin is nothing.
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    _die_with_parent()
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, lines), daemon=True).start()
    setup = Setup(**json.loads(lines.get()))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (setup.memory_bytes, setup.memory_bytes))
    try:
        grader = make_grader(setup)
    except (Exception, SystemExit) as error:  # importing a person's module can raise anything
        _write(replies, {"error": describe(error)})
        os._exit(1)
    _write(replies, {})
    while True:
        for row in json.loads(lines.get()):
            grade = grader(tuple(row))
            _write(replies, [grade.reward, grade.outcome, grade.reason])


def make_grader(setup: Setup) -> Grader:
    """The function from a row to its grade; raises whatever importing what it needs raises."""
    if setup.type == "math" and setup.strict:
        return lambda row: grade_strict(row[2], row[3])
    if setup.type == "math":
        # Here and not above: the other types start without sympy.
        from hacpo.verifiers import equivalence
        from hacpo.verifiers.math_answer import grade_math

        compare = equivalence.load()
        return lambda row: grade_math(compare, row[2], row[3])
    if setup.type == "reasoning_gym":
        from hacpo.verifiers.gym import grade_gym

        return lambda row: grade_gym(row[0], row[3])
    if setup.type == "marker":
        return lambda row: grade_marker(row[2], row[3], setup.marker)
    if setup.type == "boxed":
        return lambda row: grade_boxed(row[2], row[3])
    if setup.type == "last_number":
        return lambda row: grade_last_number(row[2], row[3])
    assert setup.reward is not None
    reward = _load(setup.reward, setup.folder or os.getcwd())
    return lambda row: grade_custom(reward, row)


def grade_custom(reward: Callable[[dict[str, str], str], Any], row: Row) -> Grade:
    """Call a person's reward; None, NaN, an exception and what is no number are ungraded."""
    identity, problem, answer, response = row
    try:
        value = reward({"id": identity, "problem": problem, "answer": answer}, response)
        if value is None:
            return ungraded("error", "the reward returned None")
        if isinstance(value, str | bytes):
            return ungraded("error", f"the reward returned {value!r:.60}, not a number")
        number = float(value)
    except (Exception, SystemExit) as error:  # a person's function on a model's text: anything
        return ungraded("error", describe(error))
    if not math.isfinite(number):
        return ungraded("error", f"the reward returned {number}")
    return Grade(number, judged(number >= 1).outcome)


def describe(error: BaseException) -> str:
    """One line for an exception, even for one that cannot print itself."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # a person's exception class
        text = ""
    return f"{type(error).__name__}: {text}"[:MAX_REASON_CHARS]


def _load(dotted: str, folder: str) -> Callable[[dict[str, str], str], Any]:
    module_name, _, name = dotted.partition(":")
    sys.path.insert(0, folder)
    module = importlib.import_module(module_name)
    function = vars(module).get(name)
    if function is None:
        raise AttributeError(f"module {module_name} has no {name!r}")
    if not callable(function):
        raise TypeError(f"{name!r} of module {module_name} is no function")
    loaded: Callable[[dict[str, str], str], Any] = function
    return loaded


def _die_with_parent() -> None:
    """End with the parent even while C code (a regular expression) blocks every Python thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _read(requests: int, lines: "queue.SimpleQueue[str]") -> None:
    """Pass lines on; at the end of stdin end this process, in the middle of a row or not."""
    with open(requests, encoding="utf-8") as stream:
        for line in stream:
            lines.put(line)
    os._exit(0)


def _write(replies: int, message: object) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(replies, data) :]


if __name__ == "__main__":
    main()
