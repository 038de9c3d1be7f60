r"""The boxed match of verl's `math_reward`, for numbers that are to be compared with the paper.

The last `\boxed` of the response against the right answer, both cleaned, by text alone. Its rules
are reproduced with their oddities: a box that verl cannot read is no answer here.
"""

import re

from hacpo.verifiers.grades import EXACT, NO_ANSWER, Grade, wrong

_SPACED = r"\boxed "
_REMOVED_FIRST = ("\n", r"\!")
_FRACTIONS = ("tfrac", "dfrac")
_REMOVED_LATER = (r"\left", r"\right", r"^{\circ}", r"^\circ", r"\$")
_UNIT = r"\text{ "


def grade_strict(gold: str, response: str) -> Grade:
    """Exact, wrong or no_answer."""
    content = last_box(response)
    if content is None:
        return NO_ANSWER
    try:
        is_same = cleaned(content) == cleaned(gold)
    except (ValueError, IndexError):  # one of them cannot be cleaned: compared as they stand
        is_same = content == gold
    return EXACT if is_same else wrong()


def last_box(response: str) -> str | None:
    r"""What verl takes for the answer: of `\boxed 5$` up to the dollar, else between braces.

    Braces count even where LaTeX would escape them; an `\fbox` is found and then not read.
    """
    if _SPACED in response:
        return response.rpartition(_SPACED)[2].partition("$")[0]
    start = response.rfind(r"\boxed")
    if start < 0:
        return None
    depth = 0
    for brace in re.finditer(r"[{}]", response[start:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0 and brace[0] == "}":
            box = response[start : start + brace.end()]
            opening = r"\boxed{"
            return box[len(opening) : -1] if box.startswith(opening) else None
    return None


def cleaned(text: str) -> str:
    r"""The text as verl compares it.

    Raises:
        ValueError: more than one `\text{ `.
        IndexError: `\sqrt` or `\frac` with nothing after it.
    """
    for part in _REMOVED_FIRST:
        text = text.replace(part, "")
    text = text.replace("\\\\", "\\")
    for part in _FRACTIONS:
        text = text.replace(part, "frac")
    for part in _REMOVED_LATER:
        text = text.replace(part, "")
    text = _without_unit(text).replace(r"\%", "")
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    if text[0] == ".":
        text = "0" + text
    sides = text.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:
        text = sides[1]
    text = _with_fractions_braced(_with_roots_braced(text).replace(" ", ""))
    if text == "0.5":
        text = r"\frac{1}{2}"
    return _slash_as_fraction(text)


def _without_unit(text: str) -> str:
    value, unit, rest = text.partition(_UNIT)
    if _UNIT in rest:
        raise ValueError("two units")
    return value if unit else text


def _with_roots_braced(text: str) -> str:
    first, *others = text.split(r"\sqrt")
    braced = [part if part[0] == "{" else f"{{{part[0]}}}{part[1:]}" for part in others]
    return r"\sqrt".join([first, *braced])


def _with_fractions_braced(text: str) -> str:
    r"""`\frac12` is `\frac{1}{2}`; one that is cut short leaves the whole text as it is."""
    first, *others = text.split(r"\frac")
    braced = []
    for part in others:
        if part[0] == "{":
            braced.append(part)
        elif len(part) < 2:
            return text
        elif part[1] == "{":
            braced.append(f"{{{part[0]}}}{part[1:]}")
        else:
            braced.append(f"{{{part[0]}}}{{{part[1]}}}{part[2:]}")
    return r"\frac".join([first, *braced])


def _slash_as_fraction(text: str) -> str:
    match = re.fullmatch(r"(0|-?[1-9][0-9]*)/(0|-?[1-9][0-9]*)", text)
    return rf"\frac{{{match[1]}}}{{{match[2]}}}" if match else text
