"""Files of answers to be graded: a JSON array or JSONL of objects with `gold` and `response`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hacpo.errors import DataError

KEYS = ("gold", "response")
_EXAMPLE = r'{"gold": "5", "response": "It is \\boxed{5}."}'
_SPACE = " \t\r\n"


def read_answers(path: Path) -> list[tuple[str, str]]:
    """(gold, response) of each row, in order.

    Raises:
        DataError: one line with the file, the line, what is wrong and what to do.
    """
    text = _text(path)
    body = text.lstrip(_SPACE)
    rows = _array(text, path) if body.startswith("[") else _lines(text, path)
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
            yield number, _decoded(line, 0, f"{path} line {number}", alone=True)[0]


def _array(text: str, path: Path) -> Iterator[tuple[int, Any]]:
    """Items with the line on which each begins."""
    at, line, counted = text.index("[") + 1, 1, 0
    closed = False
    while not closed:
        at = _skip(text, at)
        line += text.count("\n", counted, at)
        counted = at
        where = f"{path} line {line}"
        if text.startswith("]", at):  # an empty array
            break
        value, at = _decoded(text, at, where)
        yield line, value
        at = _skip(text, at)
        closed = text.startswith("]", at)
        if not closed and not text.startswith(",", at):
            raise DataError(f"{where}: is not JSON (no comma or ] after this item)")
        at += 1
    if closed and text[at:].strip():
        raise DataError(f"{path}: is not JSON (text after the array); write one array or JSONL")


def _skip(text: str, at: int) -> int:
    """Behind white space."""
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _decoded(text: str, at: int, where: str, *, alone: bool = False) -> tuple[Any, int]:
    try:
        return (json.loads(text), len(text)) if alone else json.JSONDecoder().raw_decode(text, at)
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise DataError(f"{where}: is not JSON ({reason}); write {_EXAMPLE}") from None
    except RecursionError:
        raise DataError(f"{where}: is nested too deeply; write {_EXAMPLE}") from None


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
