"""Train and die by SIGKILL at the n-th call of a function: `killed_run.py CONFIG POINT N`."""

import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

POINTS = {
    "sampling": "hacpo.engines.hf:HFEngine._prefill",
    "scoring": "hacpo.models.policy:Policy.score",
    "rollouts_written": "hacpo.ledger:Ledger.write_rollouts",
    "grading": "hacpo.verifiers.pool:VerifierPool.grade",
    "between_updates": "hacpo.models.learner:Learner.optim_step",
    "summary": "hacpo.ledger:Ledger.write_summary",
    "checkpoint_weights": "hacpo.models.policy:Policy.save",
    "checkpoint_optimizer": "hacpo.checkpoints:save_file",
    "checkpoint_marker": "hacpo.checkpoints:_manifest",
    "checkpoint_rename": "pathlib:Path.rename",
    "checkpoint_commit": "hacpo.recorder:CellRecorder.checkpoint",
    "step_commit": "hacpo.recorder:CellRecorder.step",
    "evaluation_written": "hacpo.recorder:CellRecorder.evaluation",
    "finish": "hacpo.registry:Registry.finish",
}


def die_at(point: str, count: int) -> None:
    """Replace the function behind `point` by one that dies at its `count`-th call."""
    module, _, dotted = POINTS[point].partition(":")
    owner: Any = importlib.import_module(module)
    *path, name = dotted.split(".")
    for part in path:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    calls = 0

    def dying(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(owner, name, dying)


if __name__ == "__main__":
    from hacpo.api import train

    config = json.loads(Path(sys.argv[1]).read_text())
    die_at(sys.argv[2], int(sys.argv[3]))
    train(config, offline=True)
    sys.exit(f"{sys.argv[2]} was not called {sys.argv[3]} times")
