"""Bulk data on disk: a file is there whole or not at all, and what is there is proven by checksums.

Folder of one run:
    config.json                      the resolved RunConfig
    steps/000012/rollout.A.parquet   a phase is done when its file stands under its final name;
                                     its sha256 stands beside it
    steps/000012/verify.A.parquet
    steps/000012/metrics.json        the step's summary
    checkpoints/000020/              see hacpo.checkpoints
    evaluations/000060.A.json
    tracking.jsonl                   what MLflow is told (hacpo.tracking)
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hacpo.errors import StorageError
from hacpo.types import AgentStep, Rollout, StepSummary

_ROLLOUT = pa.schema(
    {
        "id": pa.string(),
        "problem_id": pa.string(),
        "source": pa.string(),
        "token_ids": pa.list_(pa.int32()),
        "text": pa.string(),
        "finish_reason": pa.string(),
        "sampler_logprobs": pa.list_(pa.float32()),
        "source_logprobs": pa.list_(pa.float32()),
        "entropy": pa.float64(),
    }
)
_GRADE = pa.schema(
    {"id": pa.string(), "reward": pa.float64(), "outcome": pa.string(), "reason": pa.string()}
)


class Ledger:
    """The files of one run.

    Raises:
        StorageError: from any method, when a file cannot be written or is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def phase_file(self, step: int, phase: str, agent: str) -> Path:
        return self.folder / "steps" / f"{step:06d}" / f"{phase}.{agent}.parquet"

    def write_rollouts(self, step: int, agent: str, rollouts: list[Rollout]) -> None:
        columns = {f.name: [getattr(r, f.name) for r in rollouts] for f in fields(Rollout)}
        self._write_table(self.phase_file(step, "rollout", agent), columns, _ROLLOUT)

    def read_rollouts(self, step: int, agent: str) -> list[Rollout]:
        rows = self._read_table(self.phase_file(step, "rollout", agent))
        return [Rollout(**row) for row in rows]

    def write_grades(
        self, step: int, agent: str, grades: dict[str, tuple[float, str, str]]
    ) -> None:
        """rollout id -> (reward, outcome, reason)."""
        columns: dict[str, list[Any]] = {
            "id": list(grades),
            "reward": [reward for reward, _, _ in grades.values()],
            "outcome": [outcome for _, outcome, _ in grades.values()],
            "reason": [reason for _, _, reason in grades.values()],
        }
        self._write_table(self.phase_file(step, "verify", agent), columns, _GRADE)

    def read_grades(self, step: int, agent: str) -> dict[str, tuple[float, str, str]]:
        rows = self._read_table(self.phase_file(step, "verify", agent))
        return {row["id"]: (row["reward"], row["outcome"], row["reason"]) for row in rows}

    def read_rewards(self, step: int, agent: str) -> dict[str, list[float]]:
        """problem id -> rewards of the agent's graded responses; reads two columns, unverified.

        For statistics over many steps, which need not read every token.
        """
        rollout, verify = (self.phase_file(step, phase, agent) for phase in ("rollout", "verify"))
        with storage_errors(rollout):
            problems = pq.read_table(rollout, columns=["id", "problem_id"]).to_pylist()
            grades = pq.read_table(verify, columns=["id", "reward"]).to_pylist()
        problem_of = {row["id"]: row["problem_id"] for row in problems}
        rewards: dict[str, list[float]] = {}
        for row in grades:
            if row["reward"] is not None and not math.isnan(row["reward"]):
                rewards.setdefault(problem_of[row["id"]], []).append(row["reward"])
        return rewards

    def write_summary(self, summary: StepSummary) -> None:
        path = self.folder / "steps" / f"{summary.step:06d}" / "metrics.json"
        write_json(path, asdict(summary))

    def read_summary(self, step: int) -> StepSummary:
        data = read_json(self.folder / "steps" / f"{step:06d}" / "metrics.json")
        agents = {name: AgentStep(**agent) for name, agent in data.pop("agents").items()}
        return StepSummary(**data, agents=agents)

    def steps(self) -> list[int]:
        """Steps that have a summary, in order."""
        found = (self.folder / "steps").glob("*/metrics.json")
        return sorted(int(path.parent.name) for path in found)

    def forget_after(self, step: int) -> None:
        """Drop what was made by weights that are lost: every step after `step`.

        The rollouts and grades of `step` itself came from the checkpoint's own weights and stay.
        """
        for folder in (self.folder / "steps").glob("[0-9]*"):
            if int(folder.name) > step:
                shutil.rmtree(folder)

    def _write_table(self, path: Path, columns: dict[str, list[Any]], schema: pa.Schema) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns, schema=schema), sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        with atomic_path(_digest_file(path)) as temporary:
            temporary.write_text(hashlib.sha256(data).hexdigest() + "\n")
        with atomic_path(path) as temporary:  # last: the phase is done when this file stands
            temporary.write_bytes(data)

    def _read_table(self, path: Path) -> list[dict[str, Any]]:
        with storage_errors(path):
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() != _digest_file(path).read_text().strip():
                raise StorageError(f"{path}: damaged (sha256 differs); start the run afresh")
        return list(pq.read_table(pa.BufferReader(data)).to_pylist())


def _digest_file(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`; on success it is synced and takes the final name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            sync(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync(path.parent)


def write_json(path: Path, data: Any) -> None:
    text = json.dumps(data, indent=1, sort_keys=True)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    with storage_errors(path):
        return json.loads(path.read_text(encoding="utf-8"))


def sync(path: Path) -> None:
    """fsync a file or folder, so that a rename after it survives a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's errors into one line that names the path and the remedy."""
    try:
        yield
    except StorageError:
        raise
    except FileNotFoundError as error:
        raise StorageError(f"{error.filename or path}: no such file") from error
    except json.JSONDecodeError as error:
        raise StorageError(
            f"{path}: damaged ({error}); remove the run and start it again"
        ) from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "free some space" if full else "check the folder's permissions"
        reason = error.strerror or str(error)
        raise StorageError(f"{path}: {reason}; {remedy} (HACPO_HOME moves it)") from error


def write_folder(path: Path, write: Callable[[Path], None]) -> None:
    """Fill a folder under a temporary name, sync it, and give it its final name at the end."""
    temporary = path.with_name(f".{path.name}.tmp")
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            write(temporary)
            for file in [*temporary.rglob("*"), temporary]:
                sync(file)
            if path.exists():
                shutil.rmtree(path)
            temporary.rename(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        sync(path.parent)
