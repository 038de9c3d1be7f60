"""Own problems: one JSON object a line with `id`, `problem` and `answer`, all strings."""

import json
from pathlib import Path

from hacpo.errors import DataError
from hacpo.types import Problem

KEYS = ("id", "problem", "answer")


def read_problems(path: Path) -> list[Problem]:
    """Read a problem file in its order; blank lines and further keys are ignored.

    Raises:
        DataError: one line with the file, the line, what is wrong and what to do.
    """
    problems: list[Problem] = []
    first_line: dict[str, int] = {}
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        problem = _problem(line, f"{path} line {number}")
        if problem.id in first_line:
            raise DataError(
                f"{path} line {number}: id {problem.id!r} already stands on line "
                f"{first_line[problem.id]}; give every problem its own id"
            )
        first_line[problem.id] = number
        problems.append(problem)
    if not problems:
        raise DataError(f"{path}: holds no problems; write {_EXAMPLE} on each line")
    return problems


_EXAMPLE = '{"id": "p1", "problem": "37+58=", "answer": "95"}'


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DataError(
            f"{path}: no such problem file; give a JSONL file, embedded:train or embedded:held_out"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; give a JSONL file") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path} line {line}: byte 0x{data[error.start]:02x} is not UTF-8; "
            "save the file as UTF-8"
        ) from None


def _problem(line: str, where: str) -> Problem:
    try:
        fields = json.loads(line)
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise DataError(f"{where}: is not JSON ({reason}); write {_EXAMPLE} on one line") from None
    except RecursionError:
        raise DataError(f"{where}: is nested too deeply; write {_EXAMPLE} on one line") from None
    if not isinstance(fields, dict):
        raise DataError(f"{where}: holds {_short(fields)}, not an object; write {_EXAMPLE}")
    for key in KEYS:
        if key not in fields:
            raise DataError(f"{where}: {key!r} is missing; every problem has {', '.join(KEYS)}")
        value = fields[key]
        if not isinstance(value, str):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            remedy = f'quote it: "{key}": "{_short(value)}"' if number else f"write {_EXAMPLE}"
            raise DataError(f"{where}: {key} is {_short(value)}, not a string; {remedy}")
        if not value.strip():
            raise DataError(f"{where}: {key} is empty; fill it in or remove the line")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DataError(
                f"{where}: {key} holds half of a surrogate pair; write the character itself"
            ) from None
    return Problem(id=fields["id"], problem=fields["problem"], answer=fields["answer"])


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 40 else text[:37] + "..."
