r"""LaTeX commands that somebody decoded as escapes: `\frac` that became a form feed and `rac`."""

import re

_LETTERS = {"\a": "a", "\b": "b", "\t": "t", "\v": "v", "\f": "f", "\r": "r"}
_COMMANDS = re.compile(
    "alpha|angle|approx|array|bar|beta|begin|big[lr]?|binom|bmod|bot|boxed|bullet|fbox|flat|forall|"
    "frac|rangle|rceil|rfloor|rho|right|rightarrow|tanh?|tau|text(bf|it|rm)?|tfrac|theta|tilde|"
    "times|to|top|triangle|varepsilon|varphi|vdots|vec|vee|vert"
)
"""Those that begin with such a letter and stand in problems."""
_SUSPECT = re.compile(r"([\a\b\t\v\f\r])([a-z]+)")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


def control_characters(text: str) -> int:
    """How many there are beside line feeds."""
    return len(_CONTROL.findall(text))


def damaged(text: str) -> list[str]:
    """The commands that a text should hold in place of control characters."""
    return [f"\\{word}" for word in map(_command, _SUSPECT.finditer(text)) if word]


def repaired(text: str) -> str:
    """The text with those commands put back; tabs between words stay."""

    def repair(match: re.Match[str]) -> str:
        word = _command(match)
        return f"\\{word}" if word else match[0]

    return _SUSPECT.sub(repair, text)


def _command(match: re.Match[str]) -> str:
    word = _LETTERS[match[1]] + match[2]
    return word if _COMMANDS.fullmatch(word) else ""
