"""Steps of a config with all that a training does; prints one JSON line. See versus_trl.py.

python benchmarks/our_step.py CONFIG [--agent ID] [--set KEY=VALUE]...
"""

import argparse
import json
import os
import statistics
import tempfile


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--agent")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--cycles", type=int, default=3)
    asked = parser.parse_args()
    models = os.path.join(os.environ.get("HACPO_HOME", ".hacpo"), "models")
    with tempfile.TemporaryDirectory() as home:
        if os.path.isdir(models):
            os.symlink(os.path.abspath(models), os.path.join(home, "models"))
        os.environ["HACPO_HOME"] = home
        from hacpo.api import train

        result = train(
            asked.config,
            overrides=[
                *("evaluate.samples=0", "evaluate.greedy=false", "threads=2", "device=cpu"),
                *(f"steps={asked.cycles}", "checkpoints.every=1000", *asked.set),
            ],
            agent=asked.agent,
            offline=True,
        )
        steps = result.steps()
        agents = [agent for summary in steps for agent in summary.agents.values()]
        named = ("rollout", "verify", "update")
        print(
            json.dumps(
                {
                    "seconds": [summary.seconds for summary in steps[1:]],
                    "mean_length": statistics.mean(
                        agent.metrics["response/length_mean"] for agent in agents
                    ),
                    **{
                        phase: statistics.mean(
                            sum(a.metrics[f"time/{phase}"] for a in summary.agents.values())
                            for summary in steps[1:]
                        )
                        for phase in named
                    },
                }
            )
        )


if __name__ == "__main__":
    main()
