"""Answers to one benchmark in a file that grows by finished problems, so that none is done twice.

The first line says what the answers were made with; each further one is a problem with all its
samples. A line is whole or is cut off by the next open.
"""

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from hacpo.errors import DataError, StorageError
from hacpo.ledger import storage_errors
from hacpo.types import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One sample and its grade."""

    text: str
    finish_reason: FinishReason
    tokens: int
    outcome: str
    score: float | None
    """None if ungraded."""


class Records:
    """The answers so far, by problem; one process at a time.

    Args:
        path: the file; made with its folder if it is not there.
        made_with: what decides an answer or its grade, by name.
        fresh: forget what is there.
    Raises:
        DataError: the file's answers were made with something else.
        StorageError: it is damaged, cannot be written, or another process writes it.
    """

    def __init__(self, path: Path, made_with: Mapping[str, str], *, fresh: bool = False) -> None:
        self.path = path
        self._answers: dict[str, list[Answer]] = {}
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = open(path, "ab+", buffering=0)  # noqa: SIM115 - until close
        try:
            with storage_errors(path):
                self._open(made_with, fresh)
        except BaseException:
            self.close()
            raise

    def __contains__(self, problem_id: str) -> bool:
        return problem_id in self._answers

    def __getitem__(self, problem_id: str) -> list[Answer]:
        return self._answers[problem_id]

    def __len__(self) -> int:
        return len(self._answers)

    def append(self, problems: Sequence[tuple[str, list[Answer]]]) -> None:
        """Add finished problems; they are on disk when this returns.

        Raises:
            StorageError: disk full; the next open cuts off what is not whole.
        """
        rows = [{"id": id_, "answers": [asdict(a) for a in answers]} for id_, answers in problems]
        self._write(rows)
        self._answers.update(problems)

    def close(self) -> None:
        """Let others write; a second call does nothing."""
        self._file.close()

    def __enter__(self) -> "Records":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self, made_with: Mapping[str, str], fresh: bool) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(
                f"{self.path}: another process evaluates into this file; wait for it"
            ) from None
        self._file.seek(0)
        data = b"" if fresh else self._file.read()
        whole = data.rfind(b"\n") + 1
        os.ftruncate(self._file.fileno(), whole)
        if not whole:
            self._write([{"made_with": dict(made_with)}])
            return
        header, *lines = data[:whole].splitlines()
        self._check(_parsed(self.path, 1, header).get("made_with"), made_with)
        for number, line in enumerate(lines, start=2):
            row = _parsed(self.path, number, line)
            try:
                self._answers[row["id"]] = [Answer(**answer) for answer in row["answers"]]
            except (KeyError, TypeError):
                raise _damaged(self.path, number) from None

    def _check(self, before: Any, now: Mapping[str, str]) -> None:
        if not isinstance(before, dict):
            raise _damaged(self.path, 1)
        for name in now:
            if before.get(name) != now[name]:
                raise DataError(
                    f"{self.path}: its answers were made with another {name} "
                    f"({str(before.get(name))[:40]}, now {now[name][:40]}); "
                    "--into takes another folder, --fresh begins anew"
                )

    def _write(self, rows: list[dict[str, Any]]) -> None:
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        with storage_errors(self.path):
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
            os.fsync(self._file.fileno())


def _parsed(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        raise _damaged(path, number) from None
    if not isinstance(row, dict):
        raise _damaged(path, number)
    return row


def _damaged(path: Path, number: int) -> StorageError:
    return StorageError(f"{path} line {number}: damaged; --fresh begins anew")
