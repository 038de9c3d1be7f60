import json
import math
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hacpo.errors import ConfigError, ServiceError, StorageError
from hacpo.tracking import Tracker, check_server, sync, url
from hacpo.tracking.spool import Spool, State, load_state
from hacpo.tracking.tracker import flatten
from hacpo.types import Evaluation, ProblemScore

TAGS = {
    "hacpo.cell": "c0ffee",
    "hacpo.sweep": "night",
    "hacpo.method": "hacpo",
    "hacpo.seed": "0",
    "hacpo.combination": "q+l",
}


def begin(tracker: Tracker) -> None:
    tracker.start(
        experiment="night",
        run_name="hacpo a+b s0",
        params={"update": {"learning_rate": 1e-6}},
        tags=TAGS,
        agents={"a": {"hacpo.model": "q"}, "b": {"hacpo.model": "l"}},
        config_text="steps: 2\n",
    )


def events(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "tracking.jsonl").read_text().splitlines()]


def test_without_a_server_every_call_is_one_line_and_mlflow_is_never_imported(tmp_path):
    code = f"""
import sys
from pathlib import Path
from hacpo.tracking import Tracker
tracker = Tracker(Path({str(tmp_path)!r}), None)
tracker.log_step(0, {{"a": {{"reward/mean": 0.5}}}})
tracker.finish("FINISHED")
assert tracker.close() == 0
assert not [name for name in sys.modules if name.partition(".")[0] in ("mlflow", "torch")]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert [event["kind"] for event in events(tmp_path)] == ["metrics", "finish"]


def test_without_an_address_nothing_is_sent(tmp_path):
    tracker = Tracker(tmp_path, None)
    begin(tracker)
    assert tracker.flush(1) == 0
    assert tracker.close(1) == 0
    assert tracker.unsent == 1
    assert tracker.run_ids() is None


def test_a_line_torn_by_a_kill_is_cut_off_and_its_event_can_be_logged_again(tmp_path):
    tracker = Tracker(tmp_path, None)
    tracker.log_step(0, {"a": {"reward/mean": 0.25}})
    tracker.log_step(1, {"a": {"reward/mean": 0.5}})
    path = tmp_path / "tracking.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    path.write_bytes(whole[: first + 20])

    again = Tracker(tmp_path, None)
    assert path.read_bytes() == whole[:first]
    again.log_step(0, {"a": {"reward/mean": 0.25}})
    again.log_step(1, {"a": {"reward/mean": 0.5}})
    assert [event["step"] for event in events(tmp_path)] == [0, 1]


def test_a_reader_leaves_a_line_that_is_being_written_alone(tmp_path):
    path = tmp_path / "tracking.jsonl"
    path.write_bytes(b'{"kind": "finish"}\n{"kind": "met')
    assert len(Spool(tmp_path, repair=False)) == 1
    assert path.read_bytes().endswith(b'"met')


def test_a_damaged_line_in_the_middle_keeps_its_number_and_hides_no_other_event(tmp_path):
    path = tmp_path / "tracking.jsonl"
    path.write_bytes(b'{"kind": "finish"}\n\x00\x00{"\n[1]\n{"kind": "start"}\n')
    spool = Spool(tmp_path)
    assert len(spool) == 4
    kinds = [event.get("kind") for event in spool.read(0, 10)]
    assert kinds == ["finish", None, None, "start"]
    assert spool.read(3, 10) == [{"kind": "start"}]


def test_a_replayed_step_with_equal_metrics_is_not_logged_again(tmp_path):
    step = {"a": {"reward/mean": 0.1 + 0.2, "kl/initial": math.nan, "time/step": 1.0}}
    Tracker(tmp_path, None).log_step(3, step, {"agent_a/reward": 0.1 + 0.2})
    step["a"]["time/step"] = 2.0
    step["a"]["memory/peak"] = 5.0
    again = Tracker(tmp_path, None)
    again.log_step(3, step, {"agent_a/reward": 0.1 + 0.2})
    assert len(events(tmp_path)) == 1
    again.log_step(4, step, {"agent_a/reward": 0.1 + 0.2})
    assert [event["step"] for event in events(tmp_path)] == [3, 4]


def test_a_replayed_step_that_differs_in_the_last_bit_is_logged_and_counted_by_agent(tmp_path):
    one = {"a": {"reward/mean": 0.3}, "b": {"reward/mean": 0.5}}
    Tracker(tmp_path, None).log_step(3, one, {"agent_a/reward": 0.3})
    other = {"a": {"reward/mean": math.nextafter(0.3, 1)}, "b": {"reward/mean": 0.5}}
    again = Tracker(tmp_path, None)
    again.log_step(3, other, {"agent_a/reward": math.nextafter(0.3, 1)})
    again.log_step(3, other, {"agent_a/reward": math.nextafter(0.3, 1)})
    last = events(tmp_path)[-1]
    assert len(events(tmp_path)) == 2
    assert set(last["metrics"]) == {"a", ""}  # b is as it was
    assert last["metrics"]["a"]["reward/mean"] == math.nextafter(0.3, 1)
    assert last["replayed"] == 1

    third = Tracker(tmp_path, None)
    third.log_step(3, {"b": {"reward/mean": 0.75}})
    assert events(tmp_path)[-1]["replayed"] == 2  # counted over all resumes


def test_start_is_repeated_only_after_a_finish_or_with_another_config(tmp_path):
    tracker = Tracker(tmp_path, None)
    begin(tracker)
    resumed = Tracker(tmp_path, None)
    begin(resumed)
    assert [event["kind"] for event in events(tmp_path)] == ["start"]
    resumed.finish("FAILED")
    resumed.finish("FAILED")
    begin(resumed)
    assert [event["kind"] for event in events(tmp_path)] == ["start", "finish", "start"]


def test_start_names_children_after_their_cell_and_agent_and_flattens_the_config(tmp_path):
    begin(Tracker(tmp_path, None))
    (event,) = events(tmp_path)
    assert event["agents"]["b"]["run_name"] == "hacpo a+b s0: b"
    own = {"hacpo.agent": "b", "hacpo.model": "l", "hacpo.curve": "hacpo b in q+l"}
    assert event["agents"]["b"]["tags"] == own
    assert event["params"] == {"update.learning_rate": "1e-06"}


def test_flatten_writes_what_a_person_would_search_for():
    nested = {"agents": {"a": {"model": "m", "revision": None}}, "betas": [0.9, 0.5], "on": True}
    assert flatten(nested) == {
        "agents.a.model": "m",
        "agents.a.revision": "null",
        "betas": "[0.9, 0.5]",
        "on": "true",
    }


def test_an_evaluation_has_legal_names_and_says_what_was_cut_and_not_graded(tmp_path):
    evaluation = Evaluation(
        agent="a",
        step=4,
        task="held_out",
        protocol="avg@2",
        mean=0.5,
        problems=[
            ProblemScore(problem_id="p", scores=[1.0, 0.0]),
            ProblemScore(problem_id="q", scores=[math.nan, math.nan]),
        ],
        counts={"correct": 1, "wrong": 0, "truncated": 1, "timeout": 2},
    )
    tracker = Tracker(tmp_path, None)
    tracker.log_evaluation("a", 4, [evaluation])
    tracker.log_evaluation("a", 4, [evaluation])
    (event,) = events(tmp_path)
    assert event["step"] == 4
    assert event["metrics"] == {
        "": {"agent_a/held_out_avg_at_2": 0.5},
        "a": {
            "eval/held_out/avg_at_2": 0.5,
            "eval/held_out/avg_at_2_truncated": 0.25,
            "eval/held_out/avg_at_2_ungraded_count": 2.0,
        },
    }


@pytest.mark.parametrize("name", ["avg@8", "a//b", "../a", "/a", "a/", "", "r\u00e9ward", "a(b)"])
def test_a_metric_name_that_mlflow_would_refuse_is_an_error_at_once(tmp_path, name):
    with pytest.raises(ValueError, match="metric name"):
        Tracker(tmp_path, None).log_step(0, {"a": {name: 1.0}})
    assert not (tmp_path / "tracking.jsonl").exists()


def test_events_of_several_threads_are_whole_and_numbered_as_they_lie_in_the_file(tmp_path):
    spool = Spool(tmp_path)

    def log(agent: str) -> None:
        for step in range(200):
            event = {"kind": "metrics", "name": "step", "step": step}
            spool.append_metrics(event, {agent: {"reward/mean": step / 7}}, {})

    threads = [
        threading.Thread(target=log, args=(agent * size,)) for size, agent in enumerate("abcd", 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = events(tmp_path)
    assert len(stored) == len(spool) == 800
    assert [spool.read(number, 1) for number in range(800)] == [[event] for event in stored]


def test_a_spool_that_cannot_be_written_is_a_storage_error_naming_the_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"tracking\.jsonl"):
        Tracker(tmp_path / "file", None).finish("FAILED")


def test_a_full_disk_is_an_error_and_leaves_only_whole_lines(tmp_path):
    code = f"""
import resource
from pathlib import Path
from hacpo.errors import StorageError
from hacpo.tracking import Tracker
tracker = Tracker(Path({str(tmp_path)!r}), None)
tracker.log_step(0, {{"a": {{"reward/mean": 0.5}}}})
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
size = (Path({str(tmp_path)!r}) / "tracking.jsonl").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))
try:
    tracker.log_step(1, {{"a": {{"reward/mean": 0.5}}}})
except StorageError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
tracker.log_step(1, {{"a": {{"reward/mean": 0.5}}}})
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "tracking.jsonl: disk full" in run.stdout
    assert [event["step"] for event in events(tmp_path)] == [0, 1]


def test_the_state_survives_a_restart_and_a_damaged_one_only_means_a_resend(tmp_path):
    state = State("http://m", 7, "1", "parent", {"a": "child"})
    state.save(tmp_path)
    assert load_state(tmp_path) == state
    assert Tracker(tmp_path, None).run_ids() == ("parent", {"a": "child"})
    assert [path.name for path in tmp_path.iterdir()] == ["tracking_state.json"]
    (tmp_path / "tracking_state.json").write_text('{"cursor": ')
    assert load_state(tmp_path) == State()


def test_another_server_gets_everything_from_the_beginning(tmp_path):
    begin(Tracker(tmp_path, None))
    State("http://old", 1, "1", "parent", {"a": "child"}).save(tmp_path)
    tracker = Tracker(tmp_path, "http://127.0.0.1:9")
    assert tracker.close(5) == 1
    assert tracker.run_ids() is None


def test_check_server_says_where_and_what_to_do_when_nothing_answers():
    with pytest.raises(ServiceError) as caught:
        check_server("http://user:secret@127.0.0.1:9/")
    assert str(caught.value) == (
        "MLflow does not answer at http://127.0.0.1:9/: start it with "
        "`bash infra/quickstart.sh` or pass --offline"
    )


@pytest.mark.parametrize("uri", ["file:///tmp/mlruns", "mlruns", "databricks", "ftp://host"])
def test_other_kinds_of_address_are_refused_with_those_allowed(tmp_path, uri):
    with pytest.raises(ConfigError, match="http://HOST:PORT, https://HOST or sqlite:///FILE"):
        check_server(uri)
    with pytest.raises(ConfigError, match="sqlite:///FILE"):
        Tracker(tmp_path, uri)


def test_a_sqlite_file_needs_no_server():
    check_server("sqlite:////nowhere/mlflow.db")


def test_url_is_the_runs_page_without_a_password():
    page = url("https://me:secret@mlflow.team:5000/", "3", "abc")
    assert page == "https://mlflow.team:5000/#/experiments/3/runs/abc"


class Guarded(BaseHTTPRequestHandler):
    """Wants ann's password, or a token."""

    def do_GET(self) -> None:
        known = {f"Basic {b64encode(b'ann:open sesame').decode()}", "Bearer hush"}
        self.send_response(200 if self.headers["Authorization"] in known else 401)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def test_check_server_sends_credentials_and_tells_when_they_are_refused(monkeypatch):
    for name in ("USERNAME", "PASSWORD", "TOKEN"):
        monkeypatch.delenv(f"MLFLOW_TRACKING_{name}", raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        at = f"127.0.0.1:{server.server_port}"
        for uri in (f"http://{at}", f"http://ann:wrong@{at}"):
            with pytest.raises(ServiceError) as caught:
                check_server(uri)
            assert str(caught.value).startswith(f"MLflow at http://{at} refuses these credentials")
            assert "wrong" not in str(caught.value)
        check_server(f"http://ann:open%20sesame@{at}")
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "hush")
        check_server(f"http://{at}")
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "open sesame")
        check_server(f"http://{at}")
        server.shutdown()


class Silent(BaseHTTPRequestHandler):
    """Accepts and never answers, or answers 404."""

    def do_GET(self) -> None:
        if self.path.startswith("/other"):
            self.send_error(404)
        else:
            time.sleep(20)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def silent_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_check_server_gives_up_on_a_silent_server_after_its_timeout(silent_server):
    begun = time.monotonic()
    with pytest.raises(ServiceError, match="does not answer"):
        check_server(silent_server, timeout=0.2)
    assert time.monotonic() - begun < 3


def test_check_server_tells_another_service_from_mlflow(silent_server):
    with pytest.raises(ServiceError, match="HTTP 404"):
        check_server(f"{silent_server}/other")


def test_close_and_interpreter_exit_wait_no_longer_than_the_timeout(tmp_path, silent_server):
    code = f"""
from pathlib import Path
from tests.unit.test_tracking import begin
from hacpo.tracking import Tracker
tracker = Tracker(Path({str(tmp_path)!r}), {silent_server!r})
begin(tracker)
import time
begun = time.monotonic()
assert tracker.close(0.5) == 1
assert 0.4 < time.monotonic() - begun < 3.5
print(time.time(), flush=True)
"""
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root
    )
    assert time.time() - float(run.stdout) < 3.5  # check_server alone would have taken 5
    assert len(Spool(tmp_path)) == 1


def test_a_server_that_is_down_costs_training_nothing_and_one_warning(tmp_path, caplog):
    tracker = Tracker(tmp_path, "http://127.0.0.1:9")
    begin(tracker)
    begun = time.monotonic()
    for step in range(100):
        tracker.log_step(step, {"a": {"reward/mean": step / 3}})
    logged = time.monotonic() - begun
    assert tracker.flush(5) == 101
    assert tracker.flush(5) == 101
    assert tracker.close(5) == 101
    assert time.monotonic() - begun < 4
    assert logged < 1
    assert len([record for record in caplog.records if record.name.startswith("hacpo")]) == 1


def test_sync_of_a_folder_without_events_sends_none(tmp_path):
    assert sync(tmp_path, f"sqlite:///{tmp_path}/mlflow.db") == 0
    assert list(tmp_path.iterdir()) == []


def test_sync_needs_a_server_that_answers(tmp_path):
    begin(Tracker(tmp_path, None))
    with pytest.raises(ServiceError, match="does not answer"):
        sync(tmp_path, "http://127.0.0.1:9")
