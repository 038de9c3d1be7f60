"""Verifiable questions: the embedded ones and people's own files."""

from hacpo.problems.source import (
    check_disjoint,
    check_enough,
    load_problems,
    plain_text,
    problems_digest,
    step_problems,
)

__all__ = [
    "check_disjoint",
    "check_enough",
    "load_problems",
    "plain_text",
    "problems_digest",
    "step_problems",
]
