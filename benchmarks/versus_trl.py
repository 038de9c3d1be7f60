"""One step of GSPO, and of HACPO on two agents, against TRL 1.16 on the same work.

    pip install trl==1.16.0
    hacpo models import pypi:smollm2 && hacpo models import pypi:gemma3-270m
    python benchmarks/versus_trl.py [--dtypes bfloat16]

8 problems x 8 responses, at most 48 new tokens, one-digit sums. Each measurement is a process of
its own with two torch threads; sides take turns. HACPO's opponents are two single trainings with
twice the responses and as many updates of as many rows.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CONFIG = HERE.parent / "configs" / "real" / "smollm2+gemma3.yaml"
FEW_SHOT = "1 + 1 = 2\\n5 + 2 = 7\\n{problem} = "
COMMON = ["rollout.max_response_tokens=48", "update.rows_per_update=32"]


def ours(dtype: str, method: str, agent: str | None = None) -> dict[str, Any]:
    settings = [f"method={method}", *COMMON]
    settings += [f"agents.{name}.dtype={dtype}" for name in ("smollm2", "gemma3")]
    words = [str(HERE / "our_step.py"), str(CONFIG)]
    for setting in settings:
        words += ["--set", setting]
    return run([*words, *(["--agent", agent] if agent else [])])


def theirs(dtype: str, model: Path, *, responses: int, updates: int, plain: bool) -> dict[str, Any]:
    words = [str(HERE / "trl_step.py"), str(model), "--dtype", dtype]
    words += ["--responses", str(responses), "--updates", str(updates)]
    return run([*words, *(["--plain", FEW_SHOT] if plain else [])])


def run(words: list[str]) -> dict[str, Any]:
    environment = os.environ | {"OMP_NUM_THREADS": "2", "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    print(" ".join(map(str, words[1:]))[:150], found, flush=True)
    return found


def seconds(measured: list[dict[str, Any]]) -> float:
    return statistics.median(value for one in measured for value in one["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--skip-pair", action="store_true")
    asked = parser.parse_args()
    from hacpo.models.resolve import resolve_model
    from hacpo.places import home

    smollm2 = Path(resolve_model("pypi:smollm2", None, home()))
    gemma3 = Path(resolve_model("pypi:gemma3-270m", None, home()))
    medians = {}
    for dtype in asked.dtypes:
        mine, trl = [], []
        for _ in range(asked.rounds):
            mine.append(ours(dtype, "gspo", "smollm2"))
            trl.append(theirs(dtype, smollm2, responses=8, updates=2, plain=False))
        medians[dtype] = seconds(mine), seconds(trl)
        print(f"GSPO {dtype}: ours {medians[dtype][0]:.1f} s, TRL {medians[dtype][1]:.1f} s")
    best_mine, best_trl = (min(side) for side in zip(*medians.values(), strict=True))
    print(f"GSPO, each at its best: {best_trl / best_mine:.2f} times TRL's speed")
    if "float32" in medians:
        a, b = medians["float32"]
        print(f"GSPO, float32 on both: {b / a:.2f} times")
    if asked.skip_pair:
        return
    best = {side: min(medians, key=lambda d: medians[d][side]) for side in (0, 1)}
    pair = ours(best[0], "hacpo")
    alone = [
        theirs(best[1], smollm2, responses=16, updates=4, plain=False),
        theirs(best[1], gemma3, responses=16, updates=4, plain=True),
    ]
    total = sum(statistics.median(one["seconds"]) for one in alone)
    mine_pair = statistics.median(pair["seconds"])
    print(f"HACPO on two agents {mine_pair:.1f} s, two TRL trainings {total:.1f} s: ", end="")
    print(f"{total / mine_pair:.2f} times")


if __name__ == "__main__":
    main()
