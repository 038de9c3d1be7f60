"""The embedded problems: sums whose digit-by-digit solution is wrong once a carry is forgotten.

A problem is `37+58=` or `72-48=`: two-digit numbers, a result of at most two digits, and a carry
(or borrow) out of the ones. Its solution works from the right, each step `digit op digit op carry
= digit , next carry`, then states the result: `7+8+0=5,1.3+5+1=9,0#95`. A careless solution
writes every carry as 0 and therefore ends at a wrong result.
"""

import hashlib
from functools import lru_cache

from hacpo.types import Problem

OPERATORS = "+-"
CHARACTERS = "0123456789+-=,.#"
"""Every character of a problem or solution."""
MARKER = "#"
"""Stands before the result."""
HELD_OUT_PER_OPERATOR = 128

Sum = tuple[int, str, int]
"""First number, operator, second number."""


def problem_of(numbers: Sum) -> Problem:
    """The problem that asks for a sum: (37, "+", 58) -> `37+58=`, with answer `95`."""
    first, operator, second = numbers
    result = first + second if operator == "+" else first - second
    name = f"{first}{operator}{second}"
    return Problem(id=name, problem=f"{name}=", answer=str(result))


def solution_text(numbers: Sum, *, careless: bool = False) -> str:
    """The digit-by-digit solution with its result.

    >>> solution_text((37, "+", 58))
    '7+8+0=5,1.3+5+1=9,0#95'
    >>> solution_text((37, "+", 58), careless=True)
    '7+8+0=5,0.3+5+0=8,0#85'
    """
    first, operator, second = numbers
    sign = 1 if operator == "+" else -1
    steps: list[str] = []
    result = carry = 0
    for place in (1, 10):
        upper, lower = first // place % 10, second // place % 10
        total = upper + sign * (lower + carry)
        digit = total % 10
        next_carry = 0 if careless else int(total != digit)
        steps.append(f"{upper}{operator}{lower}{operator}{carry}={digit},{next_carry}")
        result += place * digit
        carry = next_carry
    return f"{'.'.join(steps)}{MARKER}{result}"


@lru_cache(maxsize=1)
def splits() -> tuple[tuple[Sum, ...], tuple[Sum, ...]]:
    """All sums as (train, held out): disjoint, the same on every machine.

    The 128 of each operator whose hash is smallest are held out. Agents are pre-trained on
    solutions of the train part alone.
    """
    train: list[Sum] = []
    held_out: list[Sum] = []
    for operator in OPERATORS:
        hashed = sorted(_sums(operator), key=_hash)
        held_out += sorted(hashed[:HELD_OUT_PER_OPERATOR])
        train += sorted(hashed[HELD_OUT_PER_OPERATOR:])
    return tuple(train), tuple(held_out)


def _sums(operator: str) -> list[Sum]:
    pairs = [(first, second) for first in range(10, 100) for second in range(10, 100)]
    if operator == "+":
        # 7 + 8 carries out of the ones, and the result stays below 100
        kept = [(a, b) for a, b in pairs if a % 10 + b % 10 > 9 and a + b < 100]
    else:
        kept = [(a, b) for a, b in pairs if a % 10 < b % 10 and a >= b]
    return [(first, operator, second) for first, second in kept]


def _hash(numbers: Sum) -> str:
    first, operator, second = numbers
    return hashlib.sha256(f"held out {first}{operator}{second}".encode()).hexdigest()
