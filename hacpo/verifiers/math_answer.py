r"""The answer in the last balanced `\boxed{...}`: by text, by digits, then by algebra."""

from hacpo.verifiers.answer_text import (
    expression,
    holds_neighbours,
    is_words,
    number,
    plain,
    readable,
    refusal,
)
from hacpo.verifiers.boxed import last_boxed
from hacpo.verifiers.equivalence import Comparison
from hacpo.verifiers.grades import EQUIVALENT, EXACT, NO_ANSWER, Grade, wrong

MAX_ANSWER_CHARS = 2000
"""A longer answer is compared by text only."""


def grade_math(compare: Comparison, gold: str, response: str) -> Grade:
    """Outcome exact, equivalent, wrong, no_answer, timeout or error.

    Numbers in digits are compared by value, to the last digit; `compare` decides about the rest.
    """
    content = last_boxed(response)
    if content is None or not content.strip():
        return NO_ANSWER
    if len(content) > MAX_ANSWER_CHARS:
        is_same = plain(content) == plain(gold)
        return EXACT if is_same else wrong(f"longer than {MAX_ANSWER_CHARS} characters")
    answer, expected = readable(content), readable(gold)
    # 1 2 is no 12, though text is compared without its spaces
    is_alike = holds_neighbours(answer) == holds_neighbours(expected)
    if plain(answer) == plain(expected) and is_alike:
        return EXACT
    if is_words(expected):  # the parser multiplies letters: seat would be east
        is_same = plain(answer).casefold() == plain(expected).casefold()
        return EQUIVALENT if is_same else wrong("words are compared by text")
    values = number(answer), number(expected)
    if None not in values:
        return EQUIVALENT if values[0] == values[1] else wrong()
    reason = refusal(answer, expected)
    if reason:
        return wrong(reason)
    return compare(expression(expected), expression(answer))
