"""Grading answers: text rules, own rewards, and the pool of killable processes that runs them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hacpo.verifiers.grades import Grade
    from hacpo.verifiers.pool import VerifierPool
    from hacpo.verifiers.shared import grade

__all__ = ["Grade", "VerifierPool", "grade"]


def __getattr__(name: str) -> object:
    # A worker process imports this package too; it must start without the pool's imports.
    if name == "VerifierPool":
        from hacpo.verifiers.pool import VerifierPool

        return VerifierPool
    if name == "Grade":
        from hacpo.verifiers.grades import Grade

        return Grade
    if name == "grade":
        from hacpo.verifiers.shared import grade

        return grade
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
