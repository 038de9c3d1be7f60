"""Answers to the tasks of reasoning-gym, by the task's own score: exactly 1.0 is correct.

Several of its scores evaluate the answer as Python. Those get only answers in which nothing can be
called but a few functions of numbers; all others are wrong without being looked at.
"""

import re

from hacpo.errors import DataError
from hacpo.problems.gym import item_of
from hacpo.verifiers.boxed import last_boxed
from hacpo.verifiers.grades import NO_ANSWER, Grade, judged, ungraded, wrong

_TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_NO_VALUE = re.compile(r"(?<![a-z])[+-]?(?:nan|inf|infinity)(?:j|i)?(?![a-z])", re.IGNORECASE)

# No small letters outside quotes: eval would look them up among the score's own variables.
_LIST = re.compile(r"[A-Z\d_\s,\[\]]*|[\[\],\s]*(?:['\"]\w*['\"][\[\],\s]*)*", re.ASCII)
_ARITHMETIC = re.compile(r"[\d\s.+\-*/()]*", re.ASCII)
_FORMULA = re.compile(
    r"(?:[\d\s.+\-*/^()=,]|(?<!\w)(?:[a-zA-Z]|a?sinh?|a?cosh?|a?tanh?|exp|log|sqrt|pi)(?!\w))*",
    re.ASCII,
)
_EVALUATED = {
    "binary_matrix": _LIST,
    "countdown": _ARITHMETIC,
    "intermediate_integration": _FORMULA,
    "n_queens": _LIST,
    "polynomial_multiplication": _FORMULA,
    "puzzle24": _ARITHMETIC,
    "simple_integration": _FORMULA,
    "spiral_matrix": _LIST,
    "string_insertion": _LIST,
}
"""Tasks of reasoning-gym 0.1.25 whose score calls eval or parse_expr on the answer."""


def grade_gym(identity: str, response: str) -> Grade:
    """Grade a response to the problem with this id (see `hacpo.problems.gym`).

    The answer is what stands in the last `<answer>...</answer>`, else in the last box, else the
    whole response.
    """
    answer = _answer(response)
    if not answer:
        return NO_ANSWER
    try:
        task, dataset, item = item_of(identity)
    except (DataError, ValueError) as error:
        return ungraded("error", str(error))
    allowed = _EVALUATED.get(task)
    if allowed is not None and not allowed.fullmatch(answer):
        return wrong("answers are not evaluated as Python")
    # A score that subtracts and compares takes nan for anything.
    if _NO_VALUE.search(answer) and not _NO_VALUE.search(str(item["answer"])):
        return wrong("is no number")
    try:
        score = dataset.score_answer(answer, item)
    except MemoryError:
        return ungraded("error", "the score took too much memory")
    except Exception as error:  # a score on a model's text: an answer it cannot read is wrong
        return wrong(f"cannot be scored: {type(error).__name__}")
    return judged(score == 1.0)


def _answer(response: str) -> str:
    tagged = _TAG.findall(response)
    if tagged:
        return str(tagged[-1]).strip()
    boxed = last_boxed(response)
    return (response if boxed is None else boxed).strip()
