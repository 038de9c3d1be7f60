"""The process that evaluates a run's checkpoint on benchmarks; started by `phases.benchmarks`.

    python -m hacpo.benchmark_process

Standard input: one line, the request. The evaluations go to the file that this names; what it says
goes to standard output. It ends when its input does, since then nobody waits for it.
"""

import dataclasses
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from hacpo.errors import HacpoError
from hacpo.ledger import write_json


def main() -> int:
    """Exit code 2: the last line says what to mend."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _work(request)
    except HacpoError as error:
        print(f"error: {' '.join(str(error).split())}", flush=True)
        return 2
    return 0


def _work(request: dict[str, Any]) -> None:
    from hacpo.benchmarking import Asked, evaluate_subject
    from hacpo.subjects import run_subjects

    (subject,) = run_subjects(Path(request["run"]), request["agent"], request["step"])
    config = subject.config.model_copy(update={"device": request["device"]})
    asked = Asked(
        benchmarks=tuple(request["benchmarks"]),
        data=Path(request["data"]),
        limit=request["limit"],
        max_tokens=request["max_tokens"],
        prompt=request["prompt"],
        workers=request["workers"],
    )
    results = evaluate_subject(
        dataclasses.replace(subject, config=config), asked, lambda line: print(line, flush=True)
    )
    evaluations = [result.evaluation(request["agent"], request["step"]) for result in results]
    write_json(Path(request["result"]), [dataclasses.asdict(e) for e in evaluations])


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
