"""What documents point at is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
FILE = re.compile(
    r"`(?!infra/\.env)((?:hacpo|flows|infra|configs|tests|docs|benchmarks)/[\w./+-]*\w)`"
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_named_files_are_there(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    targets = [document.parent / target for target in LINK.findall(text)]
    targets += [ROOT / name for name in FILE.findall(text)]
    assert [str(path) for path in targets if not path.exists()] == []


def test_every_picture_in_docs_is_shown_somewhere() -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    pictures = [*ROOT.glob("docs/*.svg"), *ROOT.glob("docs/*.png")]
    assert [path.name for path in pictures if path.name not in shown] == []
