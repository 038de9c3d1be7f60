"""The numbers for programs: CSV of raw points, JSON of everything."""

import csv
import dataclasses
import io
import math
from collections.abc import Sequence
from typing import Any

from hacpo.report.points import Point


def points_csv(sweep: str, points: Sequence[Point]) -> str:
    """One line for each combination, method, agent, seed, benchmark and protocol; fractions."""
    text = io.StringIO()
    names = ["sweep", *(field.name for field in dataclasses.fields(Point))]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({"sweep": sweep, **dataclasses.asdict(point)} for point in points)
    return text.getvalue()


def plain(data: Any) -> Any:
    """Dataclasses as JSON data; what is not finite becomes null."""
    match data:
        case float():
            return data if math.isfinite(data) else None
        case dict():
            return {str(key): plain(value) for key, value in data.items()}
        case list() | tuple():
            return [plain(value) for value in data]
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return {f.name: plain(getattr(data, f.name)) for f in dataclasses.fields(data)}
    return data
