"""A whole training with a real MLflow server: what is read back is what happened."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
import torch
import yaml
from mlflow.tracking import MlflowClient
from transformers import AutoModelForCausalLM, AutoTokenizer

import hacpo
from hacpo.api import Result
from tests.servers import mlflow_server
from tests.tiny import tiny_pair

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Result, MlflowClient]]:
    folder = tmp_path_factory.mktemp("tracked")
    config: dict[str, Any] = tiny_pair(folder) | {"steps": 3, "tracking": {"kl_every": 1}}
    with mlflow_server(folder / "mlflow") as uri, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HACPO_HOME", str(folder / "home"))
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        mlflow.set_tracking_uri(uri)
        yield hacpo.train(config), MlflowClient(uri)


def runs(client: MlflowClient, filter_string: str) -> list[Any]:
    experiment = client.get_experiment_by_name("tiny")
    return list(client.search_runs([experiment.experiment_id], filter_string))


def test_a_cell_is_a_parent_with_a_child_for_each_agent(tracked: tuple[Result, Any]) -> None:
    result, client = tracked
    (parent,) = runs(client, "tags.`hacpo.method` = 'hacpo' and tags.`hacpo.agent` is null")
    children = runs(client, f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    assert sorted(child.data.tags["hacpo.agent"] for child in children) == ["a", "b"]
    for run in (parent, *children):
        assert run.info.status == "FINISHED"
        assert run.data.tags["hacpo.cell"] == result.cell.key
        assert run.data.tags["hacpo.combination"] == "a+b"
        assert run.data.tags["hacpo.seed"] == "0"
    assert parent.data.params["update.problems_per_step"] == "4"
    config = client.download_artifacts(parent.info.run_id, "config.yaml")
    assert yaml.safe_load(Path(config).read_text()) == result.config.model_dump(mode="json")


def test_every_metric_of_every_step_is_there_once(tracked: tuple[Result, Any]) -> None:
    result, client = tracked
    for agent in ("a", "b"):
        (run,) = runs(client, f"tags.`hacpo.agent` = '{agent}'")
        for name in result.steps()[0].agents[agent].metrics:
            history = client.get_metric_history(run.info.run_id, name)
            expected = [
                (summary.step, summary.agents[agent].metrics[name])
                for summary in result.steps()
                if name in summary.agents[agent].metrics
            ]
            found = sorted((point.step, point.value) for point in history)
            assert found == expected, name


def test_both_agents_have_the_same_metric_names_as_the_documentation(
    tracked: tuple[Result, Any],
) -> None:
    result, _ = tracked
    documented = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    first, second = (set(result.steps()[0].agents[agent].metrics) for agent in ("a", "b"))
    # one for each source, which is the other agent
    by_source = re.compile(r"(ratio/cross_mean|retokenized/\w+)/(?P<source>\w+)")
    plain = {name for name in first if not by_source.fullmatch(name)}
    assert plain == {name for name in second if not by_source.fullmatch(name)}
    sources = {by_source.fullmatch(name)["source"] for name in first - plain}
    assert sources == {"b"}
    for name in plain:
        section, _, last = name.rpartition("/")
        if section == "rows":
            last = "REASON" if last not in documented else last
        if section == "verifier":
            last = last.removesuffix("_count")  # documented as OUTCOME_count, with every OUTCOME
        if last.endswith(("_min", "_max")):
            last = last[-4:]
        assert last in documented, name


def test_evaluations_before_and_after_are_there(tracked: tuple[Result, Any]) -> None:
    result, client = tracked
    (run,) = runs(client, "tags.`hacpo.agent` = 'b'")
    history = client.get_metric_history(run.info.run_id, "eval/held_out/avg_at_2")
    expected = [(s, e.mean) for s in (0, 3) for e in result.evaluations("b", s)[:1]]
    assert sorted((point.step, point.value) for point in history) == expected


def test_the_logged_checkpoint_loads_with_transformers(
    tracked: tuple[Result, Any], tmp_path: Path
) -> None:
    result, client = tracked
    (run,) = runs(client, "tags.`hacpo.agent` = 'a'")
    folder = client.download_artifacts(run.info.run_id, "checkpoint", str(tmp_path))
    model = AutoModelForCausalLM.from_pretrained(folder)
    trained = AutoModelForCausalLM.from_pretrained(result.model("a"))
    untrained = AutoModelForCausalLM.from_pretrained(result.config.agents["a"].model)
    assert all(map(torch.equal, model.parameters(), trained.parameters()))
    assert not all(map(torch.equal, model.parameters(), untrained.parameters()))
    ids = AutoTokenizer.from_pretrained(folder)("001+010=", return_tensors="pt")["input_ids"]
    assert model.generate(ids, max_new_tokens=4).shape[1] > ids.shape[1]
