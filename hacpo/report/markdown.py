"""A report in Markdown."""

from collections.abc import Sequence

from hacpo.report.section import Section, Table, one_line


def markdown(sections: Sequence[Section]) -> str:
    """Sections one after another, each under a heading of the third level."""
    parts = []
    for section in sections:
        parts.append(f"### {_escaped(section.title)}")
        parts += [_escaped(paragraph) for paragraph in section.text]
        several = len(section.tables) > 1
        for table in section.tables:
            named = several and bool(table.title)
            parts.append((f"**{_escaped(table.title)}**\n\n" if named else "") + _table(table))
        parts += [_escaped(note) for note in section.notes]
        if section.lines:
            parts.append("\n".join(f"- {_escaped(line)}" for line in section.lines))
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    numbers = len(table.head) - table.text_columns
    rule = ["---"] * table.text_columns + ["---:"] * numbers
    lines = [table.head, rule, *table.rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return _escaped(text).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Text from configs and errors neither breaks a table nor becomes HTML."""
    return one_line(text).replace("<", "&lt;")
