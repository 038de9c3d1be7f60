"""The benchmarks of a config, in a process of its own: all its memory returns when it ends.

The process evaluates the run's checkpoint as `hacpo evaluate` would, into the same files, so that
neither repeats what the other has finished.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hacpo.agents import Agent
from hacpo.benchmarks.catalogue import benchmark
from hacpo.errors import HacpoError
from hacpo.ledger import read_json, storage_errors
from hacpo.places import data_folder
from hacpo.run import Run
from hacpo.types import Evaluation, ProblemScore

_ROOT = Path(__file__).resolve().parents[2]
_MODULE = "hacpo.benchmark_process"
_TOLD = "error: "


def evaluate_benchmarks(run: Run, step: int, agent: Agent) -> list[Evaluation]:
    """One agent at a checkpoint, on every benchmark of the config.

    The untrained model (step 0) is looked up first: it is the same in every cell.

    Raises:
        HacpoError: the process says what is wrong, or ended; its log is named.
    """
    names = run.config.evaluate.benchmarks
    if step == 0:
        found = [
            run.recorder.earlier_evaluation(agent.name, name, benchmark(name).protocol)
            for name in names
        ]
        if all(found):
            return [evaluation for evaluation in found if evaluation is not None]
    folder = run.ledger.folder / "evaluations" / f"{step:06d}.{agent.name}"
    result = folder / "result.json"
    if not result.exists():
        _run_process(_request(run, step, agent, result), folder / "log.txt")
    return read_benchmarks(run.ledger.folder, step, agent.name)


def read_benchmarks(folder: Path, step: int, agent: str) -> list[Evaluation]:
    """What `evaluate_benchmarks` left in a run's folder; [] if it was not asked for."""
    result = folder / "evaluations" / f"{step:06d}.{agent}" / "result.json"
    if not result.exists():
        return []
    return [_evaluation(row) for row in read_json(result)]


def _evaluation(row: dict[str, Any]) -> Evaluation:
    problems = [ProblemScore(**problem) for problem in row.pop("problems")]
    return Evaluation(**row, problems=problems)


def _request(run: Run, step: int, agent: Agent, result: Path) -> dict[str, Any]:
    settings = run.config.evaluate
    return {
        "run": str(run.ledger.folder),
        "agent": agent.name,
        "step": step,
        "device": str(agent.device),
        "benchmarks": settings.benchmarks,
        "data": str(data_folder()),
        "limit": settings.benchmark_limit,
        "max_tokens": settings.benchmark_tokens,
        "prompt": settings.benchmark_prompt,
        "workers": run.config.verifier.workers,
        "result": str(result),
    }


def _run_process(request: dict[str, Any], log: Path) -> None:
    """Wait for the process; it ends when this one does, since its input then ends."""
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with storage_errors(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        printed = log.open("ab")
    with printed:
        process = subprocess.Popen(
            # -P: a `json.py` in the working directory must not replace the standard one
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        status = process.wait()
    except BrokenPipeError:
        status = process.wait()
    except BaseException:  # interrupted: finished problems are kept
        process.kill()
        process.wait()
        raise
    finally:
        process.stdin.close()
    if status:
        raise HacpoError(_last_words(log) or f"the benchmarks' process ended with {status}: {log}")


def _last_words(log: Path) -> str:
    """The error of a log, if a person can mend it."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = lines[-1] if lines else ""
    return last.removeprefix(_TOLD) if last.startswith(_TOLD) else ""
