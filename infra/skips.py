"""Fails if a test was skipped for a reason that is not expected.

    python infra/skips.py JUNIT_XML PATTERNS

PATTERNS: a file with one regular expression a line; each is searched for in `test: reason`.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def unexpected(report: Path, patterns: Path) -> list[str]:
    lines = patterns.read_text(encoding="utf-8").splitlines()
    expected = [re.compile(line) for line in lines if line.strip() and not line.startswith("#")]
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        for skipped in case.iter("skipped"):
            told = f"{case.get('classname')}.{case.get('name')}: {skipped.get('message')}"
            if skipped.get("type") != "pytest.xfail" and not any(p.search(told) for p in expected):
                found.append(told)
    return found


if __name__ == "__main__":
    skips = unexpected(Path(sys.argv[1]), Path(sys.argv[2]))
    if skips:
        sys.exit("\n".join(["Skipped unexpectedly (infra/expected_skips.txt):", *skips]))
