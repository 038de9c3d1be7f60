"""A report's tables in LaTeX, for a paper that loads booktabs."""

import re
from collections.abc import Sequence

from hacpo.report.section import Section, Table, one_line

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
}
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")
"""Before a number; between words it is a hyphen."""


def latex(sweep: str, sections: Sequence[Section]) -> str:
    """Each table as a `table` environment; what is said in words becomes its caption."""
    parts = [f"% hacpo report {one_line(sweep)}; needs \\usepackage{{booktabs}}"]
    for section in sections:
        words = [*section.text, *section.notes, *section.lines]
        if not section.tables:
            parts += [f"% {section.title}"] + [f"% {one_line(line)}" for line in words]
        for table in section.tables:
            parts.append(_environment(section, table, words))
    return "\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    plain = "".join(_SPECIAL.get(character, character) for character in one_line(text))
    return _MINUS.sub("$-$", plain.replace(r" -\textgreater{} ", r" $\rightarrow$ "))


def _environment(section: Section, table: Table, words: Sequence[str]) -> str:
    title = section.title + (f", {table.title}" if table.title else "")
    caption = " ".join(map(escaped, [f"{title}.", *words]))
    columns = "l" * table.text_columns + "r" * (len(table.head) - table.text_columns)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}"]
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _row(table.head), r"\midrule"]
    before = ""
    for row in table.rows:
        if before and row[0] != before:
            lines.append(r"\midrule")
        lines.append(_row(["" if row[0] == before else row[0], *row[1:]]))
        before = row[0]
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    # A bracket after a line's end would be read as the space to leave.
    return (
        " & ".join(f"{{{text}}}" if (text := escaped(cell))[:1] == "[" else text for cell in cells)
        + r" \\"
    )
