"""A report for a terminal of 120 columns."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from hacpo.report.section import Section, Table


def terminal(sweep: str, sections: Sequence[Section]) -> Group:
    parts: list[RichTable | Text] = []
    for section in sections:
        parts += [Text(paragraph) for paragraph in section.text]
        parts += [_table(f"{sweep}: {table.title}", table) for table in section.tables]
        parts += [Text(note, style="dim") for note in section.notes]
        if section.lines:
            parts.append(Text(f"{section.title}:", style="yellow"))
            parts += [Text(f"  {line}") for line in section.lines]
    return Group(*parts)


def _table(title: str, table: Table) -> RichTable:
    text = Text(title, style="bold")
    shown = RichTable(title=text, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for position, name in enumerate(table.head):
        named = position < table.text_columns
        justify: JustifyMethod = "left" if named else "right"
        shown.add_column(name, justify=justify, overflow="fold", no_wrap=named)
    before = ""
    for position, (first, *others) in enumerate(table.rows):
        if before and first != before:
            shown.add_section()
        style = "bold" if position in table.strong else ""
        shown.add_row(Text("" if first == before else first), *map(Text, others), style=style)
        before = first
    return shown
