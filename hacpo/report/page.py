"""A report as one HTML page: no script, nothing loaded from elsewhere, readable in print."""

from collections.abc import Sequence
from html import escape

from hacpo.report.curves import Curve, curves_figure
from hacpo.report.figure import inline
from hacpo.report.gains import gains_figure
from hacpo.report.report import Report
from hacpo.report.section import Section, Table

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 1120px;
  margin: 2rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; padding-bottom: .2rem;
  border-bottom: 1px solid #bbb; }
p { max-width: 75ch; margin: .5rem 0; }
.about, .note { color: #555; font-size: .87rem; }
.headline { font-size: 1.05rem; padding: .5rem .9rem; border-left: 4px solid #0072B2;
  background: #f3f7fa; max-width: none; }
nav { font-size: .9rem; margin: 1rem 0; }
nav a { margin-right: 1rem; color: #00527f; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem;
  margin: .6rem 0; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th { text-align: left; font-weight: 600; vertical-align: bottom; border-bottom: 2px solid #555; }
th, td { padding: .22rem .8rem .22rem 0; }
td { border-bottom: 1px solid #e3e3e3; white-space: nowrap; }
.n { text-align: right; white-space: nowrap; }
th.n { white-space: pre-line; }
tr.group td { border-top: 1.5px solid #999; }
tr.strong { font-weight: 600; }
svg { max-width: 100%; height: auto; display: block; }
@media print { body { margin: 0; max-width: none; font-size: 10pt; } nav { display: none; }
  svg, tr, p { break-inside: avoid; } h2 { break-after: avoid; }
  .wide { overflow: visible; } table { font-size: 7.5pt; } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(report: Report, curves: Sequence[Curve], about: str = "") -> str:
    """The whole report.

    Args:
        report: of a sweep.
        curves: of the same sweep; may be empty.
        about: a line under the title, e.g. when and by which version it was made.
    """
    sections = report.sections()
    titles = [(section.key, section.title) for section in sections]
    parts = [_section(section) for section in sections]
    if curves:
        at = next((i for i, s in enumerate(sections) if s.key == "cost"), len(parts))
        parts.insert(at, _curves(curves))
        titles.insert(at, ("curves", "Training curves"))
    gains = gains_figure(report.comparisons)
    if gains is not None:
        at = next(i for i, s in enumerate(sections) if s.key == "headline")
        words = "Gains of every method and agent with their 95% intervals"
        figure = inline(gains, "gains", words)
        parts[at] = parts[at].replace("</section>", f'<div class="wide">{figure}</div></section>')
    links = "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title in titles)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.sweep)}: hacpo report</title>\n<style>{_STYLE}</style>\n</head>\n"
        f'<body>\n<h1>{escape(report.sweep)}</h1>\n<p class="about">{escape(about)}</p>\n'
        f"<nav>{links}</nav>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    parts = [f'<section id="{section.key}">\n<h2>{escape(section.title)}</h2>']
    kind = ' class="headline"' if section.key == "headline" else ""
    parts += [f"<p{kind}>{escape(paragraph)}</p>" for paragraph in section.text]
    several = len(section.tables) > 1
    parts += [_table(table, several) for table in section.tables]
    parts += [f'<p class="note">{escape(note)}</p>' for note in section.notes]
    if section.lines:
        lines = "".join(f"<li>{escape(line)}</li>" for line in section.lines)
        parts.append(f"<ul>{lines}</ul>")
    return "\n".join([*parts, "</section>"])


def _table(table: Table, titled: bool) -> str:
    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{_number(position, table)}>{escape(value)}</{tag}>"
            for position, value in enumerate(values)
        )

    rows, before = [], ""
    for position, (first, *others) in enumerate(table.rows):
        kinds = ["group"] if before and first != before else []
        kinds += ["strong"] if position in table.strong else []
        kind = f' class="{" ".join(kinds)}"' if kinds else ""
        rows.append(f"<tr{kind}>{cells('td', ['' if first == before else first, *others])}</tr>")
        before = first
    caption = f"<caption>{escape(table.title)}</caption>" if titled and table.title else ""
    head = f"<thead><tr>{cells('th', table.head)}</tr></thead>"
    body = "\n".join(rows)
    return f'<div class="wide"><table>{caption}{head}<tbody>\n{body}\n</tbody></table></div>'


def _number(position: int, table: Table) -> str:
    return "" if position < table.text_columns else ' class="n"'


def _curves(curves: Sequence[Curve]) -> str:
    figure = inline(curves_figure(list(curves)), "rewards", "Reward of each agent by training step")
    return (
        '<section id="curves">\n<h2>Training curves</h2>\n'
        f'<div class="wide">{figure}</div>\n<p class="note">Mean over seeds; the band reaches from '
        "the lowest to the highest seed.</p>\n</section>"
    )
