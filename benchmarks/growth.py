"""How a step's time grows with agents, and an update's with rows and response length; a plot.

    python benchmarks/growth.py growth.svg

Agents: the embedded agent b so many times, 4 steps each, with a reward that leaves no group without
signal, so that every row is learned from; the sum over agents of sampling and of updating. Rows and
length: the same agent, one update of random responses.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

AGENTS = 4
REWARD = "import random\n\ndef chance(problem, response):\n    return random.random()\n"
ROWS, LENGTHS = [32, 64, 128, 256, 512], [24, 48, 96, 192]


def by_agents(count: int, home: str) -> tuple[float, float]:
    """(sampling, updating) seconds of a step with `count` agents, medians over steps."""
    from hacpo.api import train

    agents = {f"agent{i}": {"model": "embedded:b"} for i in range(count)}
    overrides = [f"agents={json.dumps(agents)}", "steps=5", "evaluate.samples=0"]
    overrides += ["evaluate.greedy=false", "tracking.kl_every=0", "threads=1"]
    overrides += ["rollout.truncated=grade"]
    overrides += ["update.rows_per_update=4096"]  # one update: only the number of rows differs
    reward = {"type": "custom", "reward": "growth_reward:chance", "folder": home}
    overrides += [f"verifier={json.dumps(reward)}"]
    result = train("configs/embedded/pair.yaml", overrides=overrides, offline=True)
    seconds: dict[str, float] = {}
    for phase in ("rollout", "update"):
        seconds[phase] = statistics.median(
            sum(agent.metrics[f"time/{phase}"] for agent in summary.agents.values())
            for summary in result.steps()[1:]
        )
    return seconds["rollout"], seconds["update"]


def updating(rows: int, length: int) -> float:
    """Seconds of one update, fastest of three."""
    from hacpo.models.learner import Learner
    from hacpo.models.load import load_policy
    from hacpo.models.packing import micro_batches
    from hacpo.models.resolve import resolve_model
    from hacpo.models.tokens import load_tokens
    from hacpo.places import home
    from hacpo.settings import AgentConfig, UpdateConfig
    from hacpo.types import View

    config = AgentConfig(model="embedded:b")
    folder = resolve_model(config.model, None, home())
    tokens = load_tokens("b", config, folder)
    policy = load_policy("b", config, tokens, folder, "cpu", 1.0)
    learner = Learner(policy, UpdateConfig(learning_rate=1e-9))
    generator = torch.Generator().manual_seed(0)
    views = [
        View(
            rollout_id=str(i),
            problem_id="",
            source="b",
            prompt_ids=[3 + i // 8 % 60] * 6,
            response_ids=torch.randint(2, 60, (length,), generator=generator).tolist(),
        )
        for i in range(rows)
    ]
    seconds = []
    for _ in range(3):
        started = time.monotonic()
        for micro in micro_batches(views, 16384, policy.pack_tokens):
            learner.backward(-policy.score(micro).logprobs_BT.mean())
        learner.optim_step()
        seconds.append(time.monotonic() - started)
    return min(seconds)


def plot(path: str, agents: list[tuple[float, float]], rows: Any, lengths: Any) -> None:
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    counts = range(1, len(agents) + 1)
    for index, (name, power) in enumerate((("sampling", 1), ("updates", 2))):
        measured = [pair[index] for pair in agents]
        (line,) = left.plot(counts, measured, "o-", label=name)
        bound = [measured[0] * n**power for n in counts]
        left.plot(counts, bound, ":", color=line.get_color(), label=f"first x n{'²' * (power - 1)}")
    left.set(xlabel="agents", ylabel="seconds a step", xticks=list(counts))
    left.legend(frameon=False, fontsize=8)
    for axis, measured, label in ((middle, rows, "rows consumed"), (right, lengths, "tokens")):
        xs, ys = zip(*measured, strict=True)
        axis.plot(xs, ys, "o-", label="measured")
        axis.plot(xs, [ys[0] * x / xs[0] for x in xs], ":", color="grey", label="linear")
        axis.set(xlabel=label, ylabel="seconds an update")
        axis.legend(frameon=False, fontsize=8)
    middle.set_title("26 tokens a response", fontsize=9)
    right.set_title("64 rows", fontsize=9)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plot")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as home:
        built = os.path.abspath(os.path.join(os.environ.get("HACPO_HOME", ".hacpo"), "agents"))
        if os.path.isdir(built):
            os.symlink(built, os.path.join(home, "agents"))
        os.environ["HACPO_HOME"] = home
        Path(home, "growth_reward.py").write_text(REWARD)
        agents = [by_agents(count, home) for count in range(1, AGENTS + 1)]
        for count, (sampling, updates) in enumerate(agents, start=1):
            print(f"{count} agents: sampling {sampling:.2f} s, updates {updates:.2f} s")
        rows = [(count, updating(count, 26)) for count in ROWS]
        lengths = [(length, updating(64, length)) for length in LENGTHS]
    print("rows:", ", ".join(f"{count} {seconds:.2f} s" for count, seconds in rows))
    print("tokens:", ", ".join(f"{length} {seconds:.2f} s" for length, seconds in lengths))
    plot(asked.plot, agents, rows, lengths)


if __name__ == "__main__":
    main()
