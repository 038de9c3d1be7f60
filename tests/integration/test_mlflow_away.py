"""Events for an MLflow that is down, hangs, or has lost what it had."""

import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hacpo.tracking import Tracker, sync
from tests.integration.mlflow_runs import begin, history, log, reward, runs_of
from tests.servers import free_port, mlflow_server

pytestmark = pytest.mark.slow


def test_a_deleted_run_does_not_hold_up_the_others(tmp_path, uri, client, caplog):
    tracker = Tracker(tmp_path, uri)
    begin(tracker, "deleted")
    assert tracker.flush(60) == 0
    _, agents = tracker.run_ids()
    client.delete_run(agents["a"])
    log(tracker, range(2))
    assert tracker.close(60) == 0
    assert history(client, agents["b"], "reward/mean") == [(s, reward("b", s)) for s in range(2)]
    assert "MLflow refuses metrics" in caplog.text


def test_what_was_logged_while_the_server_was_down_arrives_in_order_when_it_is_up(tmp_path, caplog):
    from mlflow.tracking import MlflowClient

    port = free_port()
    tracker = Tracker(tmp_path / "run", f"http://127.0.0.1:{port}")
    begin(tracker, "down")
    log(tracker, range(5))
    assert tracker.flush(10) == 6
    with mlflow_server(tmp_path / "server", port) as address:
        log(tracker, range(5, 8))
        assert tracker.flush(60) == 0
        tracker.finish("FINISHED")
        assert tracker.close(60) == 0
        client = MlflowClient(tracking_uri=address)
        _, agents = tracker.run_ids()
        for agent, run_id in agents.items():
            points = history(client, run_id, "reward/mean")
            assert points == [(step, reward(agent, step)) for step in range(8)]
    ours = [record for record in caplog.records if record.name.startswith("hacpo")]
    assert [record.message.partition(" in ")[0] for record in ours] == [
        "events for MLflow wait",
        "MLflow answers again and has got the events that waited",
    ]


def test_a_sqlite_file_works_and_runs_that_vanished_are_made_again_with_their_history(tmp_path):
    from mlflow.tracking import MlflowClient

    database = tmp_path / "store" / "mlflow.db"
    database.parent.mkdir()
    address = f"sqlite:///{database}"
    offline = Tracker(tmp_path / "run", None)
    begin(offline, "sqlite")
    log(offline, range(2))
    assert sync(tmp_path / "run", address) == 3
    parent, _ = Tracker(tmp_path / "run", None).run_ids()
    assert (database.parent / "mlartifacts" / "night" / parent / "artifacts/config.yaml").exists()

    client = MlflowClient(tracking_uri=address)
    for run in runs_of(client, "sqlite"):
        client.delete_run(run.info.run_id)
    log(offline, range(2, 3))
    assert sync(tmp_path / "run", address) == 4
    new_parent, agents = Tracker(tmp_path / "run", None).run_ids()
    assert new_parent != parent
    assert history(client, agents["b"], "reward/mean") == [(s, reward("b", s)) for s in range(3)]


class Stuck(BaseHTTPRequestHandler):
    """Well by its own account, but every request hangs."""

    def do_GET(self) -> None:
        if self.path != "/version":
            time.sleep(60)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"OK")

    def log_message(self, *_: object) -> None: ...


def test_an_exit_while_mlflow_hangs_waits_no_longer_than_the_timeout(tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stuck)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    code = f"""
import sys, time
from pathlib import Path
from tests.integration.mlflow_runs import begin
from hacpo.tracking import Tracker
tracker = Tracker(Path({str(tmp_path)!r}), "http://127.0.0.1:{server.server_port}")
begin(tracker, "stuck")
while "mlflow.tracking.client" not in sys.modules: time.sleep(0.1)
time.sleep(1)
begun = time.monotonic()
unsent = tracker.close(1)
print(unsent, time.monotonic() - begun, time.time(), flush=True)
"""
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root
    )
    ended = time.time()
    server.shutdown()
    server.server_close()
    unsent, waited, printed = run.stdout.split()
    assert int(unsent) == 1
    assert 0.9 < float(waited) < 3
    assert ended - float(printed) < 3
    assert run.stderr == ""


def test_nothing_of_mlflows_own_is_printed(tmp_path, uri):
    code = f"""
from pathlib import Path
from tests.integration.mlflow_runs import begin, log
from hacpo.tracking import Tracker
tracker = Tracker(Path({str(tmp_path)!r}), {uri!r})
begin(tracker, "quiet")
log(tracker, range(2))
tracker.finish("FINISHED")
assert tracker.close(60) == 0
"""
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root
    )
    assert (run.stdout, run.stderr) == ("", "")
    assert json.loads((tmp_path / "tracking_state.json").read_text())["cursor"] == 4


def test_a_cell_that_is_done_again_gets_runs_of_its_own_and_the_old_ones_say_so(
    tmp_path, uri, client
):
    ids = []
    for life in ("first", "fresh"):
        tracker = Tracker(tmp_path / life, uri)
        begin(tracker, "again")
        log(tracker, range(2))
        assert tracker.close(60) == 0
        ids.append(tracker.run_ids())
    (old, old_agents), (new, new_agents) = ids
    assert old != new
    for agent in "ab":
        points = history(client, new_agents[agent], "reward/mean")
        assert points == [(step, reward(agent, step)) for step in range(2)]
    tags = {run.info.run_id: run.data.tags for run in runs_of(client, "again")}
    assert len(tags) == 6
    for run_id in (old, *old_agents.values()):
        assert tags[run_id]["hacpo.superseded_by"] == new
    for run_id in (new, *new_agents.values()):
        assert "hacpo.superseded_by" not in tags[run_id]
