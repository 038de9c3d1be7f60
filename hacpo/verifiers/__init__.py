"""Grading answers: text rules, own rewards, and the pool of killable processes that runs them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hacpo.verifiers.grade import Grade
    from hacpo.verifiers.pool import VerifierPool

__all__ = ["Grade", "VerifierPool"]


def __getattr__(name: str) -> object:
    # A worker process imports this package too; it must start without the pool's imports.
    if name == "VerifierPool":
        from hacpo.verifiers.pool import VerifierPool

        return VerifierPool
    if name == "Grade":
        from hacpo.verifiers.grade import Grade

        return Grade
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
