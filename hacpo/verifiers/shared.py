"""`hacpo.verifiers.grade`: one mathematical answer, by a pool that this process keeps."""

import atexit
import os
import threading

from hacpo.task_settings import VerifierConfig
from hacpo.types import Problem
from hacpo.verifiers.grades import Grade
from hacpo.verifiers.pool import VerifierPool
from hacpo.verifiers.strict import grade_strict


def grade(response: str, gold: str, *, strict: bool = False) -> Grade:
    r"""Grade the last balanced `\boxed{...}` of a response as type `math` does; from any thread.

    The first call starts a worker process (about a second) that ends with this process.

    Args:
        response: a model's text; nothing of it is evaluated as code.
        gold: the right answer in LaTeX, without a box.
        strict: the boxed match of verl's `math_reward`.

    Returns:
        Outcome exact, equivalent, wrong, no_answer, timeout or error; reward 1.0 for the first
        two, None for the last two, else 0.0.

    Raises:
        ConfigError: the worker process cannot start.
    """
    for name, text in (("response", response), ("gold", gold)):
        if not isinstance(text, str):
            raise TypeError(f"{name} is {text!r:.60}, not a string")
    if strict:
        return grade_strict(gold, response)
    problem = Problem(id="", problem="", answer=gold)
    return _SHARED.pool().grade([(problem, response)])[0]


class _Shared:
    """The pool of this process; a forked child makes its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: VerifierPool | None = None

    def pool(self) -> VerifierPool:
        with self._lock:
            if self._pool is None:
                self._pool = VerifierPool(VerifierConfig(type="math"))
                atexit.register(self._pool.close)
            return self._pool

    def forget(self) -> None:
        """In a forked child: the lock may be held, and the pool's threads are not there."""
        if self._pool is not None:
            atexit.unregister(self._pool.close)  # it would kill the parent's worker
        self.__init__()  # type: ignore[misc]


_SHARED = _Shared()
os.register_at_fork(after_in_child=_SHARED.forget)
