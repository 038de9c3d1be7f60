"""How figures look, and how they become part of a page."""

import io
import re
from pathlib import Path
from typing import Any

from hacpo.errors import ConfigError

# Okabe and Ito: told apart by colour-blind eyes; dashes and markers tell them apart in print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9")
_DASHES: tuple[Any, ...] = (
    "-",
    "--",
    "-.",
    (0, (1, 1)),
    (0, (5, 1, 1, 1)),
    (0, (3, 1)),
    (0, (4, 1, 1, 1, 1, 1)),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_SALT = {"svg.hashsalt": "hacpo", "svg.fonttype": "none"}
ENDINGS = (".svg", ".png", ".pdf")


def style(position: int) -> dict[str, Any]:
    """Colour, dashes and marker of the n-th method; 49 before any two are alike."""
    shift = position // len(_COLOURS)
    return {
        "color": _COLOURS[position % len(_COLOURS)],
        "linestyle": _DASHES[(position + shift) % len(_DASHES)],
        "marker": _MARKERS[(position + shift) % len(_MARKERS)],
    }


def check_ending(path: Path) -> None:
    """Raises ConfigError for a kind of figure that is not drawn."""
    if path.suffix not in ENDINGS:
        raise ConfigError(f"{path}: curves are written as .svg, .png or .pdf")


def literal(text: str) -> str:
    """Names from configs as they are: matplotlib would read $...$ as mathematics."""
    return text.replace("$", r"\$")


def save(figure: Any, path: Path) -> None:
    """Write a figure; equal data gives equal files: no date, no random ids.

    Raises:
        ConfigError: an ending that is not drawn, or a folder that cannot be written to.
    """
    import matplotlib

    check_ending(path)
    try:
        with matplotlib.rc_context(_SALT):
            date = {"CreationDate": None} if path.suffix == ".pdf" else {"Date": None}
            figure.savefig(path, dpi=150, metadata={} if path.suffix == ".png" else date)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error


def inline(figure: Any, name: str, description: str) -> str:
    """A figure as an `svg` element whose ids begin with `name`, so that several share a page."""
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context(_SALT):
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    assert '"' not in description, description
    return svg.replace("<svg ", f'<svg role="img" aria-label="{description}" ', 1)
