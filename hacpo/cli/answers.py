"""Files of answers to be graded: a JSON array or JSONL of objects with `gold` and `response`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hacpo.errors import DataError

KEYS = ("gold", "response")
_EXAMPLE = r'{"gold": "5", "response": "It is \\boxed{5}."}'


def read_answers(path: Path) -> list[tuple[str, str]]:
    """(gold, response) of each row, in order.

    Raises:
        DataError: one line with the file, the line, what is wrong and what to do.
    """
    text = _text(path)
    rows = _array(text, path) if text.lstrip().startswith("[") else _lines(text, path)
    answers = [_answer(row, f"{path} line {line}") for line, row in rows]
    if not answers:
        raise DataError(f"{path}: holds no answers; write {_EXAMPLE} on each line")
    return answers


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; give a JSON or JSONL file of answers") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 ({error.reason}); save it as UTF-8") from None


def _lines(text: str, path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, _decoded(line, path, number)


def _array(text: str, path: Path) -> Iterator[tuple[int, Any]]:
    """Items with the line on which each begins."""
    decoder = json.JSONDecoder()
    at, line, counted = text.index("[") + 1, 1, 0
    for item in _decoded(text, path, 1):
        while text[at] in " \t\r\n,":
            at += 1
        line += text.count("\n", counted, at)
        counted = at
        yield line, item
        _, at = decoder.raw_decode(text, at)


def _decoded(text: str, path: Path, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{path} line {first_line + error.lineno - 1}"
        raise DataError(f"{where}: is not JSON ({error.msg}); write {_EXAMPLE}") from None
    except (ValueError, RecursionError) as error:  # an integer of 5000 digits, brackets in brackets
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DataError(f"{path} line {first_line}: {reason}; write {_EXAMPLE}") from None


def _answer(row: Any, where: str) -> tuple[str, str]:
    if not isinstance(row, dict):
        raise DataError(f"{where}: holds {json.dumps(row)[:40]}, not an object; write {_EXAMPLE}")
    for key in KEYS:
        if key not in row:
            raise DataError(f"{where}: {key!r} is missing; write {_EXAMPLE}")
        if not isinstance(row[key], str):
            raise DataError(
                f"{where}: {key} is {json.dumps(row[key])[:40]}, not a string; quote it"
            )
    if not row["gold"].strip():
        raise DataError(f"{where}: gold is empty; write the right answer")
    return row["gold"], row["response"]
