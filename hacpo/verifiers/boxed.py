r"""An answer stands in the last balanced `\boxed{...}`, compared as text after light cleaning."""

import re

from hacpo.verifiers.grades import NO_ANSWER, Grade, judged

_TOKEN = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
_REMOVED = re.compile(r"\\(?:left|right)(?![a-zA-Z])|\\?\$|\\[,;:! ]|\s")
_FRACTION = re.compile(r"\\[dt]frac(?![a-zA-Z])")


def grade_boxed(answer: str, response: str) -> Grade:
    r"""Correct if the last balanced `\boxed{...}` equals the answer after `normalize`."""
    content = last_boxed(response)
    if content is None:
        return NO_ANSWER
    return judged(normalize(content) == normalize(answer))


def last_boxed(text: str) -> str | None:
    r"""Content of the balanced `\boxed{...}` that opens last; linear in the length of the text."""
    opened: list[int | None] = []
    last: tuple[int, int] | None = None
    for token in _TOKEN.finditer(text):
        if token[0].startswith(r"\boxed"):
            opened.append(token.end())
        elif token[0] == "{":
            opened.append(None)
        elif token[0] == "}" and opened:
            start = opened.pop()
            if start is not None and (last is None or start > last[0]):
                last = (start, token.start())
    return None if last is None else text[last[0] : last[1]]


def normalize(text: str) -> str:
    r"""Without spaces, dollar signs, `\left`, `\right` and a final period; `\dfrac` is `\frac`."""
    text = _FRACTION.sub(r"\\frac", _REMOVED.sub("", text))
    return text.removesuffix(".")
