r"""The text of a mathematical answer: one writing for many, and what is refused before any algebra.

Only text: nothing here computes, so a hostile answer costs no more than reading it.
"""

import re
import unicodedata

from hacpo.verifiers.boxed import normalize
from hacpo.verifiers.last_number import Number, number_of

_SUPERSCRIPTS = dict(
    zip(
        "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207a\u207b\u207f",
        "0123456789+-n",
        strict=True,
    )
)
_SUBSCRIPTS = {chr(0x2080 + digit): str(digit) for digit in range(10)}
_LATEX = {
    "\N{MINUS SIGN}": "-",
    "\N{SMALL HYPHEN-MINUS}": "-",
    "\N{EN DASH}": "-",
    "\N{MULTIPLICATION SIGN}": r"\times ",
    "\N{MIDDLE DOT}": r"\cdot ",
    "\N{DOT OPERATOR}": r"\cdot ",
    "\N{DIVISION SIGN}": r"\div ",
    "\N{PLUS-MINUS SIGN}": r"\pm ",
    "\N{INFINITY}": r"\infty ",
    "\N{LESS-THAN OR EQUAL TO}": r"\le ",
    "\N{GREATER-THAN OR EQUAL TO}": r"\ge ",
    "\N{NOT EQUAL TO}": r"\ne ",
    "\N{DEGREE SIGN}": r"^\circ ",
    "\N{UNION}": r"\cup ",
    "\N{INTERSECTION}": r"\cap ",
    "\N{ELEMENT OF}": r"\in ",
    "\N{EMPTY SET}": r"\emptyset ",
    "\N{HORIZONTAL ELLIPSIS}": r"\ldots ",
    "\N{GREEK SMALL LETTER PI}": r"\pi ",
    "\N{GREEK SMALL LETTER THETA}": r"\theta ",
    "\N{GREEK SMALL LETTER ALPHA}": r"\alpha ",
    "\N{GREEK SMALL LETTER BETA}": r"\beta ",
    "\N{GREEK SMALL LETTER LAMDA}": r"\lambda ",
    "\N{GREEK SMALL LETTER PHI}": r"\phi ",
    "\N{ALMOST EQUAL TO}": r"\approx ",
    "\N{IDENTICAL TO}": r"\equiv ",
    "\N{RIGHTWARDS ARROW}": r"\to ",
    "\N{RIGHTWARDS DOUBLE ARROW}": r"\Rightarrow ",
}
_ROOT = re.compile(r"\N{SQUARE ROOT}\s*(?:(\d+(?:\.\d+)?|[a-zA-Z])|\{([^{}]*)\}|\(([^()]*)\))")
_RAISED = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_LOWERED = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")
_COMPARISONS = ((r"<=", r"\le "), (r">=", r"\ge "), (r"!=", r"\ne "))

_SIZES = re.compile(r"\\(?:big|Big|bigg|Bigg)[lr]?(?![a-zA-Z])|\\displaystyle(?![a-zA-Z])")
_THOUSANDS = re.compile(r"(?<![\d.])(\d{1,3})((?:\\,|\\ |\{,\}|\s)\d{3})+(?![\d{])")
_SEPARATOR = re.compile(r"\\[, ]|\{,\}|\s")
_ONE_CHARACTER = re.compile(r"([_^])\{(\w)\}")
_WRAPPED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox)\s*\{([^{}\\]*)\}")
_CHOICE = re.compile(r"\(([A-Za-z])\)")
_NUMBER = re.compile(
    r"([+-]*)\s*(?:\\?\$)?\s*(?:(\d{1,3}(?:,\d{3})+)|(\d*))(?:\.(\d*))?(?:[eE]([+-]?\d{1,4}))?",
    re.ASCII,
)
_E_NOTATION = re.compile(r"(-?\d+(?:\.\d+)?)[eE]\+?(-?\d{1,4})", re.ASCII)

_EQUALS = re.compile(
    r"=|\\(?:approx|equiv|cong|sim|simeq|doteq|triangleq|to|mapsto|implies|iff"
    r"|(?:long)?(?:left)?rightarrow|(?:Long)?(?:Left)?[Rr]ightarrow)(?![a-zA-Z])"
)
_COMMAND = re.compile(
    r"\\(?!text|mbox|math|operatorname|angle|triangle|ell"
    r"|alpha|beta|gamma|delta|theta|lambda|mu|rho|sigma|phi|omega)[a-zA-Z]+"
)
"""Commands that are no names."""
_WORDS = re.compile(r"\\(?:text\w*|mbox|mathrm)\s*\{([^{}]*)\}")
_SECOND_ANSWER = re.compile(r"(?<![\^\d])(?<!\^\{)\d|\b(?:or|and|not)\b")
_CONJUNCTION = re.compile(r",?\s*\\(?:text|mbox)\s*\{[\s,;.]*(?:or|and)\s*\}")
_SIDE_BY_SIDE = re.compile(r"(?<![\d.])\d[\d.]*(?:\s|~|\\[,;:! ]|\\q?quad|\\[lc]?dots)+(?=\d)")
_FRACTION_BEFORE = re.compile(r"\\[dtc]?frac\s*$")
_BASE = re.compile(r"\d\)?\s*_\s*\{?\s*(\d+)")


def readable(text: str) -> str:
    r"""The answer in LaTeX and ASCII: x\u00b2 is x^{2}, a full-width digit is a digit, 5. is 5."""
    text = "".join(_vulgar(c) if unicodedata.category(c) == "No" else c for c in text)
    text = _RAISED.sub(lambda m: "^{" + "".join(_SUPERSCRIPTS[c] for c in m[0]) + "}", text)
    text = _LOWERED.sub(lambda m: "_{" + "".join(_SUBSCRIPTS[c] for c in m[0]) + "}", text)
    text = unicodedata.normalize("NFKC", text)
    text = _ROOT.sub(lambda m: rf"\sqrt{{{m[1] or m[2] or m[3] or ''}}}", text)
    text = "".join(_LATEX.get(c, c) for c in text)
    for signs, command in _COMPARISONS:
        text = text.replace(signs, command)
    text = _SIZES.sub("", text)
    text = _THOUSANDS.sub(lambda m: _SEPARATOR.sub("", m[0]), text).strip()
    return text.removesuffix(".").rstrip()


def plain(text: str) -> str:
    """A readable answer as it is compared by text."""
    whole = _WRAPPED.fullmatch(text.strip())
    text = normalize(whole[1] if whole else text)
    text = _ONE_CHARACTER.sub(r"\1\2", text)
    choice = _CHOICE.fullmatch(text)
    return choice[1] if choice else text


def is_words(text: str) -> bool:
    r"""Whether a readable answer is a text in letters, such as `\text{east}`."""
    whole = _WRAPPED.fullmatch(text)
    return whole is not None and bool(re.fullmatch(r"[^\W\d_][^\W\d_ -]+", whole[1].strip()))


def number(text: str) -> Number | None:
    """The value of a readable answer that is one number in digits, else None."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or len(match[1]) > 1:
        return None
    whole, fraction = (match[2] or match[3] or "").replace(",", ""), match[4] or ""
    if not whole + fraction:
        return None
    return number_of(whole, fraction, int(match[5] or 0), match[1] == "-")


def expression(text: str) -> str:
    r"""A readable answer for the parser, which knows neither 1e-3 nor `\text{, and }`."""
    text = _CONJUNCTION.sub(", ", text)
    match = _E_NOTATION.fullmatch(text)
    return rf"{match[1]}\times 10^{{{match[2]}}}" if match else text


def refusal(answer: str, gold: str) -> str:
    """Why a readable answer is not compared at all; "" if it may be.

    The comparison takes what stands last in a chain, drops words and adds what stands side by
    side; an answer that names several candidates could then be right by accident.
    """
    chain = _EQUALS.findall(answer)
    if len(chain) > 1:
        return "holds several equals signs"
    if chain and not re.search("[A-Za-z]", _COMMAND.sub("", _EQUALS.split(answer)[0])):
        return "has an equals sign with no name before it"
    if any(_names_another(words) for words in _WORDS.findall(answer)):
        return "holds another answer in words"
    if holds_neighbours(answer):
        return "holds two numbers side by side"
    if _BASE.findall(answer) or _BASE.findall(gold):
        return "numbers with a base are compared by text"
    return ""


def holds_neighbours(answer: str) -> bool:
    """Whether two numbers stand side by side in a readable answer."""
    return any(
        not _FRACTION_BEFORE.search(answer[max(0, found.start() - 12) : found.start()])
        for found in _SIDE_BY_SIDE.finditer(answer)
    )


def _names_another(words: str) -> bool:
    stripped = words.strip(" ,.;")
    is_number = re.fullmatch(r"[\d.,]+", stripped)
    return stripped not in ("or", "and") and not is_number and bool(_SECOND_ANSWER.search(words))


def _vulgar(character: str) -> str:
    r"""\u00bd as a LaTeX fraction; other characters as they are."""
    over, slash, under = unicodedata.normalize("NFKC", character).partition("\N{FRACTION SLASH}")
    return rf"\frac{{{over}}}{{{under}}}" if slash and under else character
