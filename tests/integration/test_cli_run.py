"""`hacpo run` from its beginning to its end, and to an end before that."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from hacpo.places import default_registry_url
from hacpo.registry import Registry
from tests.cli_runner import COMMAND, Cli, environment
from tests.tiny import tiny_pair

pytestmark = pytest.mark.usefixtures("home")


def test_run_trains_and_shows_what_it_knows_the_second_time(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(tiny_pair(tmp_path)))
    first = cli("run", str(path), "--json")
    assert first.code == 0
    assert "step 2 of 2: reward a " in first.err
    facts = json.loads(first.out)
    assert (facts["label"], facts["steps"]) == ("hacpo a+b s0", 2)
    assert set(facts["agents"]["a"]["before"]) == {"avg@2", "greedy"}
    assert (Path(facts["agents"]["b"]["model"]) / "model.safetensors").is_file()
    second = cli("run", str(path))
    assert "is done already" in second.err
    after = 100 * facts["agents"]["a"]["after"]["avg@2"]
    assert re.search(rf"a +avg@2 +[\d.]+ +{after:.1f}\b", second.out)
    assert f"model a: {facts['agents']['a']['model']}" in second.out
    rows = json.loads(cli("rollouts", "show", "hacpo a+b s0", "--limit", "99", "--json").out)
    assert len(rows["rows"]) == 32  # 4 problems x 4 responses x 2 agents of the newest step
    (cell,) = json.loads(cli("status", "runs", "--json").out)["cells"]
    assert (cell["state"], cell["steps_done"], cell["key"]) == ("done", 2, facts["key"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_who_ends_a_run_hands_the_cell_back_and_is_told_how_to_go_on(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(tiny_pair(tmp_path) | {"steps": 2000}))
    with subprocess.Popen(
        [*COMMAND, "run", str(path)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
        # A shell's background jobs, and so tests that run in one, are started deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "step 2 of 2000" in line:
                process.send_signal(number)
                break
        rest = process.stderr.read()
    assert process.returncode == code
    assert "run the same command again to resume" in rest.strip().split("\n")[-1]
    assert "Traceback" not in rest
    with Registry.open(default_registry_url()) as registry:
        (cell,) = registry.sweep("runs").cells
    assert cell.state == "queued"
    assert cell.steps_done >= 2
