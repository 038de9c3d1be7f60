"""Whether two LaTeX expressions are equal, by math-verify: only in a process that can be killed.

Importing this module is cheap; `load` imports sympy and math-verify (about a second).
"""

import importlib
import importlib.metadata
import logging
import os
import re
import signal
from collections.abc import Callable
from functools import lru_cache
from types import FrameType
from typing import Any

from hacpo.errors import ConfigError
from hacpo.verifiers.grades import EQUIVALENT, Grade, ungraded, wrong

SOFT_SECONDS = 3.0
"""Processor time of one comparison, so that a busy machine changes no grade. What does not heed
the signal is killed with its process after `VerifierConfig.timeout` on the clock."""
ANTLR = "4.13.2"
"""Other runtimes of antlr parse the same LaTeX to other values."""
_DECIMALS = 12
_DIGITS = 30
_RELATIVE = 1e-10
_HARMLESS_CODE = re.compile(r"(?:Integer|Float|Rational|Symbol|'[\w.+-]*'|[0-9\s().,*/+-])*")

Comparison = Callable[[str, str], Grade]
"""(gold, answer) in LaTeX -> equivalent, wrong, timeout or error."""


class _TooLongError(BaseException):
    """Passes `except Exception`, which sympy and math-verify use freely."""


def load() -> Comparison:
    """Import the libraries; call the result from the main thread only (it uses a signal).

    Raises:
        ConfigError: the runtime of antlr is not the one that the results were tested with.
    """
    found = importlib.metadata.version("antlr4-python3-runtime")
    if found != ANTLR:
        raise ConfigError(
            f"verifier math needs antlr4-python3-runtime {ANTLR}, found {found}: "
            f"pip install antlr4-python3-runtime=={ANTLR}"
        )
    # With gmpy2 a huge binomial is one C call that no signal interrupts.
    os.environ.update(SYMPY_GROUND_TYPES="python", MPMATH_NOGMPY="1")
    import math_verify
    from sympy.parsing import sympy_parser

    importlib.import_module("sympy.physics.units")  # simplify would, and it needs sympify
    # The plain-expression parser, which evaluates Python, is not used. The LaTeX parser makes
    # numbers by sympify, which evaluates as well: all but numbers and names ends here.
    sympy_parser.eval_expr = _harmless_only(sympy_parser.eval_expr)
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # "no timeout": it is ours
    extraction = [
        math_verify.LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)
    ]

    def parse(text: str) -> list[Any]:
        parsed: list[Any] = math_verify.parse(
            rf"\boxed{{{text}}}",
            extraction_config=extraction,
            fallback_mode="no_fallback",
            parsing_timeout=None,
        )
        return parsed

    parse_gold = lru_cache(maxsize=512)(parse)  # one gold, many responses

    def compare(gold: str, answer: str) -> Grade:
        expected, given = parse_gold(gold), parse(answer)
        if not given:
            return wrong("is no expression")
        if not expected:
            return wrong("the right answer is no expression: compared by text only")
        equal = math_verify.verify(
            expected,
            given,
            float_rounding=_DECIMALS,
            allow_set_relation_comp=True,
            timeout_seconds=None,
            raise_on_error=True,
        )
        if not equal or ("%" not in gold + answer and _are_apart(expected[0], given[0])):
            return wrong()
        return EQUIVALENT

    return lambda gold, answer: _guarded(compare, gold, answer)


def _guarded(compare: Comparison, gold: str, answer: str) -> Grade:
    """Compare within SOFT_SECONDS; whatever the library raises about an answer makes it wrong."""
    started = False

    def stop(number: int, frame: FrameType | None) -> None:
        if started:
            raise _TooLongError

    signal.signal(signal.SIGPROF, stop)
    try:
        started = True
        signal.setitimer(signal.ITIMER_PROF, SOFT_SECONDS)
        return compare(gold, answer)
    except _TooLongError:
        return ungraded("timeout", f"no comparison within {SOFT_SECONDS:g} s of processor time")
    except MemoryError:
        return ungraded("error", "the comparison took too much memory")
    except Exception as error:  # a computer algebra system on a model's text: anything
        return wrong(f"cannot be compared: {type(error).__name__}")
    finally:
        started = False
        signal.setitimer(signal.ITIMER_PROF, 0)


def _are_apart(gold: Any, answer: Any) -> bool:
    """Whether two numbers differ by more than rounding, which the library's decimals do not see.

    It takes 1.6e-19 and 3.2e-19 for equal: both are 0 to twelve decimals.
    """
    from sympy import Expr

    if not (isinstance(gold, Expr) and isinstance(answer, Expr)):
        return False
    if not (gold.is_number and answer.is_number):
        return False
    one, other = (value.doit().evalf(_DIGITS) for value in (gold, answer))
    if one == other:  # infinities too
        return False
    return bool(abs(one - other).evalf() > _RELATIVE * (abs(one) + abs(other)).evalf())


def _harmless_only(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(code: str, *names: dict[str, Any]) -> Any:
        if not _HARMLESS_CODE.fullmatch(code):
            raise ValueError("answers are not evaluated as Python")
        return evaluate(code, *names)

    return guarded
