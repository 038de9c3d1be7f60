"""The tracker against a real MLflow server; what is asserted is read back through MLflow's API."""

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from hacpo.tracking import Tracker, sync, url
from hacpo.types import Evaluation, ProblemScore
from tests.integration.mlflow_runs import begin, history, log, reward, runs_of

pytestmark = pytest.mark.slow

VIEW = "mlflow.sharedViewState.hacpo"


def test_a_cell_is_a_parent_with_a_child_for_each_agent(tmp_path, uri, client):
    tracker = Tracker(tmp_path, uri)
    begin(tracker, "layout")
    log(tracker, range(3))
    tracker.finish("FINISHED")
    assert tracker.close(60) == 0

    parent_id, agents = tracker.run_ids()
    parent = client.get_run(parent_id)
    shared = {
        "hacpo.cell": "layout",
        "hacpo.sweep": "night",
        "hacpo.method": "hacpo",
        "hacpo.seed": "0",
        "hacpo.combination": "q+l",
    }
    assert parent.info.run_name == "hacpo a+b s0"
    assert parent.info.status == "FINISHED"
    assert parent.info.experiment_id == tracker.experiment_id
    assert client.get_experiment(tracker.experiment_id).name == "night"
    assert shared.items() <= parent.data.tags.items()
    assert parent.data.params == {"method": "hacpo", "update.learning_rate": "1e-06"}
    assert history(client, parent_id, "agent_b/reward") == [(s, reward("b", s)) for s in range(3)]
    config = client.download_artifacts(parent_id, "config.yaml", str(tmp_path))
    assert Path(config).read_text() == "steps: 3\n"

    assert set(agents) == {"a", "b"}
    for agent, model in (("a", "q"), ("b", "l")):
        child = client.get_run(agents[agent])
        own = {"mlflow.parentRunId": parent_id, "hacpo.agent": agent, "hacpo.model": model}
        assert child.info.run_name == f"hacpo a+b s0: {agent}"
        assert child.info.status == "FINISHED"
        assert (shared | own).items() <= child.data.tags.items()
        points = history(client, agents[agent], "reward/mean")
        assert points == [(step, reward(agent, step)) for step in range(3)]  # bit for bit
    assert url(uri, tracker.experiment_id, parent_id) == (
        f"{uri}/#/experiments/{tracker.experiment_id}/runs/{parent_id}"
    )


def test_runs_can_be_found_by_their_tags(tmp_path, uri, client):
    tracker = Tracker(tmp_path, uri)
    begin(tracker, "filters")
    assert tracker.close(60) == 0
    _, agents = tracker.run_ids()
    (found,) = client.search_runs(
        [tracker.experiment_id],
        "tags.`hacpo.cell` = 'filters' and tags.`hacpo.agent` = 'b' and tags.`hacpo.model` = 'l'"
        " and tags.`hacpo.seed` = '0' and tags.`hacpo.combination` = 'q+l'",
    )
    assert found.info.run_id == agents["b"]


def test_the_experiment_gets_a_view_and_a_description_unless_it_has_one(tmp_path, uri, client):
    named = "mlflow.note.content"
    for name, before in {
        "new": {},
        "described": {named: "mine", VIEW: "of an older version"},
    }.items():
        if before:
            client.create_experiment(name, tags=before)
        tracker = Tracker(tmp_path / name, uri)
        begin(tracker, name, experiment=name)
        assert tracker.close(60) == 0
        experiment = client.get_experiment(tracker.experiment_id)
        link = f"(#/experiments/{experiment.experiment_id}/runs?viewStateShareKey=hacpo&"
        assert (link in experiment.tags[named]) == (name == "new")
        assert before.get(named) in (None, experiment.tags[named])
        view = json.loads(json.loads(experiment.tags[VIEW])["state"])
        found = client.search_runs(
            [experiment.experiment_id], view["searchFilter"], order_by=[f"{view['orderByKey']} ASC"]
        )
        assert [run.data.tags["hacpo.curve"] for run in found] == [
            "hacpo a in q+l",
            "hacpo b in q+l",
        ]


def test_a_resend_after_losing_the_state_doubles_no_run_and_no_point(tmp_path, uri, client):
    tracker = Tracker(tmp_path, uri)
    begin(tracker, "resend")
    log(tracker, range(4))
    assert tracker.close(60) == 0
    before = tracker.run_ids()
    (tmp_path / "tracking_state.json").unlink()  # as if killed before it was written

    again = Tracker(tmp_path, uri)
    assert again.close(60) == 0
    assert again.run_ids() == before
    assert sync(tmp_path, uri) == 0
    assert len(runs_of(client, "resend")) == 3
    for agent, run_id in before[1].items():
        points = history(client, run_id, "reward/mean")
        assert points == [(step, reward(agent, step)) for step in range(4)]


def test_a_resumed_run_that_repeats_steps_leaves_one_history_and_runs_again(tmp_path, uri, client):
    killed = Tracker(tmp_path, uri)
    begin(killed, "resume")
    log(killed, range(4))
    killed.finish("KILLED")
    assert killed.close(60) == 0
    parent, agents = killed.run_ids()
    assert client.get_run(agents["a"]).info.status == "KILLED"

    resumed = Tracker(tmp_path, uri)
    begin(resumed, "resume")
    log(resumed, range(2, 6))  # the last checkpoint was after step 1
    assert resumed.flush(60) == 0
    assert client.get_run(parent).info.status == "RUNNING"
    assert client.get_run(agents["a"]).info.status == "RUNNING"
    resumed.finish("FINISHED")
    assert resumed.close(60) == 0
    assert resumed.run_ids() == (parent, agents)
    points = history(client, agents["a"], "reward/mean")
    assert points == [(step, reward("a", step)) for step in range(6)]
    assert "hacpo.replayed_steps_differ" not in client.get_run(parent).data.tags


def test_replayed_steps_that_differ_are_kept_and_tagged(tmp_path, uri, client):
    tracker = Tracker(tmp_path, uri)
    begin(tracker, "differ")
    tracker.log_step(0, {"a": {"reward/mean": 0.25}, "b": {"reward/mean": 0.5}})
    tracker.log_step(0, {"a": {"reward/mean": 0.75}, "b": {"reward/mean": 0.5}})
    assert tracker.close(60) == 0
    parent, agents = tracker.run_ids()
    assert sorted(history(client, agents["a"], "reward/mean")) == [(0, 0.25), (0, 0.75)]
    assert history(client, agents["b"], "reward/mean") == [(0, 0.5)]
    assert client.get_run(parent).data.tags["hacpo.replayed_steps_differ"] == "1"


def test_values_that_are_not_finite_are_counted_instead_of_sent(tmp_path, uri, client):
    tracker = Tracker(tmp_path, uri)
    begin(tracker, "nonfinite")
    tracker.log_step(0, {"a": {"kl/initial": math.nan, "ratio/max": math.inf, "lr": 0.5}})
    tracker.log_step(1, {"a": {"kl/initial": 0.25, "ratio/max": 2.0, "lr": 0.5}})
    assert tracker.close(60) == 0
    run_id = tracker.run_ids()[1]["a"]
    assert history(client, run_id, "kl/initial") == [(1, 0.25)]
    assert history(client, run_id, "ratio/max") == [(1, 2.0)]
    assert history(client, run_id, "lr") == [(0, 0.5), (1, 0.5)]
    assert history(client, run_id, "nonfinite/count") == [(0, 2.0)]


def test_evaluations_reach_the_child_and_the_parents_one_table_view(tmp_path, uri, client):
    evaluations = [
        Evaluation(
            agent="b",
            step=2,
            task="held_out",
            protocol=protocol,
            mean=mean,
            problems=[ProblemScore(problem_id="p", scores=[mean])],
            counts={"correct": 0, "wrong": 1},
        )
        for protocol, mean in (("avg@8", 0.375), ("greedy", 0.25))
    ]
    tracker = Tracker(tmp_path, uri)
    begin(tracker, "evaluation")
    tracker.log_evaluation("b", 2, evaluations)
    assert tracker.close(60) == 0
    parent, agents = tracker.run_ids()
    assert history(client, agents["b"], "eval/held_out/avg_at_8") == [(2, 0.375)]
    assert history(client, agents["b"], "eval/held_out/greedy") == [(2, 0.25)]
    assert client.get_run(parent).data.metrics == {
        "agent_b/held_out_avg_at_8": 0.375,
        "agent_b/held_out_greedy": 0.25,
    }


def test_a_folder_arrives_in_its_agents_run_with_subfolders(tmp_path, uri, client):
    checkpoint = tmp_path / "000003"
    (checkpoint / "tokenizer").mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(bytes(range(256)))
    (checkpoint / "tokenizer" / "tokenizer.json").write_text("{}")
    tracker = Tracker(tmp_path / "run", uri)
    begin(tracker, "artifacts")
    tracker.log_artifact_folder("a", checkpoint, "checkpoint")
    tracker.log_artifact_folder("b", tmp_path / "pruned", "checkpoint")
    tracker.log_step(3, {"b": {"reward/mean": 0.5}})
    assert tracker.close(60) == 0

    _, agents = tracker.run_ids()
    listed = client.list_artifacts(agents["a"], "checkpoint")
    assert [(file.path, file.file_size) for file in listed if not file.is_dir] == [
        ("checkpoint/model.safetensors", 256)
    ]
    (nested,) = client.list_artifacts(agents["a"], "checkpoint/tokenizer")
    assert nested.path == "checkpoint/tokenizer/tokenizer.json"
    fetched = client.download_artifacts(agents["a"], "checkpoint/model.safetensors", str(tmp_path))
    assert Path(fetched).read_bytes() == bytes(range(256))
    assert client.list_artifacts(agents["b"]) == []
    assert history(client, agents["b"], "reward/mean") == [(3, 0.5)]  # not held up by the gone one


def test_a_folder_that_mlflow_cannot_take_is_given_up_after_three_attempts(
    tmp_path, uri, client, monkeypatch, caplog
):
    attempts = []

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

        def log_artifact(self, run_id: str, path: str, target: str) -> None:
            attempts.append(target)
            raise TimeoutError("read timed out")

    monkeypatch.setattr("hacpo.tracking.sender.connect", lambda uri: Slow())
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "model.safetensors").write_bytes(b"0")
    tracker = Tracker(tmp_path / "run", uri)
    begin(tracker, "slow")
    tracker.log_artifact_folder("a", tmp_path / "checkpoint", "checkpoint")
    tracker.finish("FINISHED")
    deadline = time.monotonic() + 60
    while tracker.flush(10) and time.monotonic() < deadline:
        pass
    assert tracker.close(60) == 0
    assert attempts == ["checkpoint"] * 3
    assert "MLFLOW_HTTP_REQUEST_TIMEOUT" in caplog.text
    assert client.get_run(tracker.run_ids()[0]).info.status == "FINISHED"


def test_many_events_and_many_metrics_arrive_whole_and_in_order(tmp_path, uri, client):
    steps, names = 250, [f"m/{number}" for number in range(30)]  # over each of MLflow's limits
    offline = Tracker(tmp_path, None)
    begin(offline, "many")
    for step in range(steps):
        offline.log_step(step, {"a": {name: step + index for index, name in enumerate(names)}})
    assert sync(tmp_path, uri) == steps + 1
    assert sync(tmp_path, uri) == 0
    _, agents = offline.run_ids()
    for index in (0, 17, 29):
        points = history(client, agents["a"], f"m/{index}")
        assert points == [(step, step + index) for step in range(steps)]


def test_a_parameter_that_changed_on_resume_is_dropped_with_a_warning(
    tmp_path, uri, client, caplog
):
    tracker = Tracker(tmp_path, uri)
    begin(tracker, "params", rate=1e-6)
    begin(tracker, "params", rate=2e-6)
    log(tracker, range(1))
    assert tracker.close(60) == 0
    parent, agents = tracker.run_ids()
    assert client.get_run(parent).data.params["update.learning_rate"] == "1e-06"
    assert history(client, agents["a"], "reward/mean") == [(0, reward("a", 0))]
    assert "MLflow refuses changed parameters" in caplog.text


def test_equal_cells_of_two_sweeps_have_runs_of_their_own(tmp_path, uri, client):
    for sweep in ("one", "two"):
        tracker = Tracker(tmp_path / sweep, uri)
        begin(tracker, "shared", sweep=sweep)
        assert tracker.close(60) == 0
    assert len(runs_of(client, "shared")) == 6


def test_a_run_ends_only_after_its_last_metrics(tmp_path, uri, client, monkeypatch):
    calls = []

    class Recording:
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(client, name)

    monkeypatch.setattr("hacpo.tracking.sender.connect", lambda uri: Recording())
    offline = Tracker(tmp_path, None)
    begin(offline, "order")
    log(offline, range(2))
    offline.finish("FINISHED")
    assert sync(tmp_path, uri) == 4
    assert calls[-4:] == ["log_batch"] * 3 + ["set_terminated"]  # looked up once for three runs
