"""The last number of a response is its answer, compared by value.

For models that answer in a sentence: `So it is $1,234.50.` is 1234.5. Nothing is evaluated: a
number is its digits and the place of its point, so 100,000 digits cost no more than reading them.
"""

import re

from hacpo.verifiers.grades import NO_ANSWER, Grade, judged, ungraded

Number = tuple[bool, str, int]
"""Is negative, digits without outer zeros, power of ten of the last one: equal values are equal."""

_DIGITS = frozenset("0123456789")  # str.isdigit knows many more
_PLAIN = re.compile(r"(?:([0-9]{1,3}(?:,[0-9]{3})+)|([0-9]*))(?:\.([0-9]+))?")
_EXPONENT = re.compile(r"[eE][+-]?$")
_MINUS = frozenset("-\N{MINUS SIGN}")
_NO_SIGN_AFTER = re.compile(r"[\w)\]}.,\-\N{MINUS SIGN}]")
_MAX_POWER_DIGITS = 4


def grade_last_number(answer: str, response: str) -> Grade:
    """Correct if the last number of the response equals that of the answer.

    Thousands commas, `$`, `%` and the full stop of a sentence do not count; `50%` is 50. A minus
    sign counts where it is no operator: not in `7-5`, nor twice in a row.
    """
    expected = last_number(answer)
    if expected is None:
        return ungraded("error", f"the problem's answer {answer!r:.60} is no number")
    found = last_number(response)
    return NO_ANSWER if found is None else judged(found == expected)


def last_number(text: str) -> Number | None:
    """The number that ends last, None where there is none; linear in the length of the text."""
    end = next((i for i in range(len(text), 0, -1) if text[i - 1] in _DIGITS), 0)
    if end == 0:
        return None
    start, exponent = _start(text, end), 0
    mark = _EXPONENT.search(text, max(0, start - 2), start)
    is_power = mark and text[mark.start() - 1 : mark.start()] in _DIGITS
    if mark and is_power and set(text[start:end]) <= _DIGITS:
        # A longer power is no answer to any problem, but must not become a longer integer.
        power = int(text[start:end][: _MAX_POWER_DIGITS + 1])
        exponent = -power if text[start - 1] == "-" else power
        end = mark.start()
        start = _start(text, end)
    run = text[start:end]
    match = _PLAIN.fullmatch(run)
    if match is None:  # `3,4` or `1.2.3`: what stands last
        piece = run.rpartition(",")[2]
        match = _PLAIN.fullmatch(piece) or _PLAIN.fullmatch(piece.rpartition(".")[2])
        is_negative = False
    else:
        is_negative = _has_sign(text, start)
    assert match is not None
    whole = (match[1] or match[2] or "").replace(",", "")
    return number_of(whole, match[3] or "", exponent, is_negative)


def _start(text: str, end: int) -> int:
    """Where the run of digits, commas and points that ends at `end` begins."""
    while end > 0 and (text[end - 1] in _DIGITS or text[end - 1] in ",."):
        end -= 1
    return end


def _has_sign(text: str, start: int) -> bool:
    at = start - 1
    if at >= 0 and text[at] == "$":  # -$5; the sign of $-5 stands right before the number
        at -= 1
    if at < 0 or text[at] not in _MINUS:
        return False
    return at == 0 or not _NO_SIGN_AFTER.match(text[at - 1])


def number_of(whole: str, fraction: str, exponent: int, is_negative: bool) -> Number:
    """The value of digits before and after a point, times ten to the exponent."""
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return False, "", 0
    power = exponent - len(fraction) + len(digits) - len(significant)
    return is_negative, significant, power
