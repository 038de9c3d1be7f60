"""The team's stack for real: PostgreSQL, S3 and passwords; and where those passwords are not."""

import base64
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import boto3
import psycopg
import pytest
from mlflow.tracking import MlflowClient

from hacpo.registry import Registry
from tests.servers import CHECKOUT, free_port

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(1800)]

BIN = Path(sys.executable).parent
PORTS = [f"HACPO_{name}_PORT" for name in ("PREFECT", "MLFLOW", "POSTGRES", "S3")]
# As infra/team.sh, which installs packages first.
START = (
    "source infra/postgres.sh; ensure_postgres; "
    'HACPO_POSTGRES_BIN="$POSTGRES_BIN" exec python infra/team.py start --workers 2'
)


@dataclass(frozen=True, kw_only=True)
class Team:
    home: Path
    outside: dict[str, str]
    """The environment of somebody who knows the addresses only."""
    inside: dict[str, str]
    """After `source HACPO_HOME/env`."""
    secrets: dict[str, str]
    commands: set[str] = field(default_factory=set)
    """Command lines that were seen while the grid ran."""

    def run(self, *command: str, known: bool = True) -> "subprocess.CompletedProcess[str]":
        environment = self.inside if known else self.outside
        return subprocess.run(
            command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=600
        )


def variables(path: Path) -> dict[str, str]:
    """What a file of assignments sets, by the shell's own reading."""
    told = subprocess.run(
        ["bash", "-c", 'set -a; source "$0"; env -0', str(path)],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
        check=True,
    )
    return dict(line.split("=", 1) for line in told.stdout.split("\0") if "=" in line)


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    """The stack, after a grid."""
    # PostgreSQL is another user when this one is root, and pytest's folders are closed to others.
    home = Path(tempfile.mkdtemp(prefix="hacpo-team-"))
    home.chmod(0o711)
    known = re.compile("PASSWORD|AUTH_STRING|SECRET|S3_|MLFLOW_|PREFECT_|HACPO_")
    bare = {name: value for name, value in os.environ.items() if not known.search(name)}
    settings = bare | {port: str(free_port()) for port in PORTS}
    settings |= {"HACPO_HOME": str(home), "PATH": f"{BIN}:{bare['PATH']}", "HACPO_SLOTS": "1"}
    settings |= {"HACPO_VENV": str(BIN.parent)}
    started = subprocess.run(
        ["bash", "-euc", START], cwd=CHECKOUT, env=settings, capture_output=True, text=True
    )
    try:
        assert started.returncode == 0, started.stdout + started.stderr
        inside = settings | variables(home / "env")
        secrets = {
            name: value.removeprefix("hacpo:")
            for name, value in variables(home / "team.env").items()
            if re.search("PASSWORD|SECRET|AUTH_STRING", name)
        }
        addresses = ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "HACPO_REGISTRY_URL")
        outside = settings | {name: inside[name] for name in addresses}
        found = Team(home=home, outside=outside, inside=inside, secrets=secrets)
        run_grid(found)
        yield found
    finally:
        stopped = subprocess.run(["bash", "infra/team.sh", "stop"], cwd=CHECKOUT, env=settings)
        shutil.rmtree(home, ignore_errors=True)
    assert stopped.returncode == 0


def run_grid(team: Team) -> None:
    """The smoke grid to its end, watching every process of the machine."""
    submitted = team.run(
        *[str(BIN / "prefect"), "deployment", "run", "hacpo-grid"],
        *["-p", "config=configs/embedded/smoke.yaml"],
    )
    found = re.search(r"UUID: (\S+)", submitted.stdout)
    assert found is not None, submitted.stdout + submitted.stderr
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
            team.commands.update(map(command_line, pids))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        followed = team.run(sys.executable, "-m", "flows.follow", found.group(1))
    finally:
        done.set()
        watcher.join()
    assert followed.returncode == 0, followed.stdout + followed.stderr


def test_all_cells_are_done_in_the_registry(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", team.inside["PGPASSWORD"])
    with Registry.open(team.inside["HACPO_REGISTRY_URL"]) as registry:
        cells = registry.sweep("embedded-smoke").cells
    assert len(cells) == 6
    assert {cell.state for cell in cells} == {"done"}
    assert not (team.home / "registry.db").exists()
    shown = team.run(str(BIN / "hacpo"), "status")
    assert (shown.returncode, "embedded-smoke" in shown.stdout) == (0, True)


def test_without_credentials_every_server_refuses(team: Team) -> None:
    api, tracking = team.outside["PREFECT_API_URL"], team.outside["MLFLOW_TRACKING_URI"]
    searched = f"{tracking}/api/2.0/mlflow/experiments/search?max_results=1"
    for url in (f"{api}/admin/version", f"{api}/work_pools/hacpo-cells", searched):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, timeout=10)
        assert refused.value.code == 401
    port = team.outside["HACPO_POSTGRES_PORT"]
    for database in ("prefect", "mlflow", "hacpo", "postgres"):
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            psycopg.connect(f"postgresql://{database}@127.0.0.1:{port}/{database}")
    own = team.secrets["PGPASSWORD"]
    for database in ("prefect", "mlflow"):  # a worker's password opens no other door
        with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
            psycopg.connect(f"postgresql://hacpo:{own}@127.0.0.1:{port}/{database}")


def test_commands_tell_in_one_line_that_they_are_refused(team: Team) -> None:
    prefect = team.run(str(BIN / "prefect"), "deployment", "run", "hacpo-grid", known=False)
    assert prefect.returncode == 2
    assert "refuses these credentials: set PREFECT_API_AUTH_STRING" in prefect.stderr
    status = team.run(str(BIN / "hacpo"), "status", known=False)
    assert (status.returncode, status.stderr.count("\n")) == (2, 1)
    assert "set PGPASSWORD" in status.stderr


def test_doctor_finds_the_servers_well_with_credentials_only(team: Team) -> None:
    names = ("registry", "mlflow server", "prefect server")
    for known in (True, False):
        told = team.run(str(BIN / "hacpo"), "doctor", known=known).stdout
        for name in names:
            (line,) = [line for line in told.splitlines() if re.search(rf"\b{name}\b  ", line)]
            assert line.startswith("ok" if known else "to do"), line


def test_metrics_are_in_mlflow_and_checkpoints_in_s3(
    team: Team, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, team.inside[name])
    client = MlflowClient(team.inside["MLFLOW_TRACKING_URI"])
    experiment = client.get_experiment_by_name("embedded-smoke")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], "tags.`hacpo.method` = 'hacpo'")
    agent = next(run for run in runs if "hacpo.agent" in run.data.tags)
    assert len(client.get_metric_history(agent.info.run_id, "reward/mean")) == 2
    (folder,) = [a.path for a in client.list_artifacts(agent.info.run_id) if a.is_dir]
    fetched = Path(client.download_artifacts(agent.info.run_id, folder, str(tmp_path)))
    weights = fetched / "model.safetensors"
    kept = variables(team.home / "team.env")
    store = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{team.outside['HACPO_S3_PORT']}",
        aws_access_key_id=kept["S3_ACCESS_KEY"],
        aws_secret_access_key=kept["S3_SECRET_KEY"],
        region_name="us-east-1",
    )
    key = f"mlflow/{experiment.experiment_id}/{agent.info.run_id}/artifacts/{folder}"
    stored = store.get_object(Bucket=kept["S3_BUCKET"], Key=f"{key}/{weights.name}")["Body"].read()
    assert stored == weights.read_bytes()
    assert len(stored) > 100_000


def test_no_secret_lies_where_it_does_not_belong(team: Team) -> None:
    assert len(team.secrets) == 7
    assert all(len(secret) >= 12 for secret in team.secrets.values())
    told = {text for secret in team.secrets.values() for text in (secret, encoded(secret))}
    holders = {team.home / "env", team.home / "team.env"}
    for path in holders:
        assert path.stat().st_mode & 0o077 == 0
        assert any(secret in path.read_text() for secret in team.secrets.values())
    files = [path for path in team.home.rglob("*") if path.is_file() and path not in holders]
    assert {"prefect.log", "mlflow.log", "postgres.log", "s3.log"} <= {path.name for path in files}
    for path in files:  # logs, ledger, the database's own files, Prefect's home
        content = path.read_bytes()
        for secret in told:
            assert secret.encode() not in content, path
    assert any("mlflow" in command and "--app-name" in command for command in team.commands)
    for command in team.commands:
        assert not any(secret in command for secret in told), command
    for database, name in {
        "prefect": "PREFECT_DB_PASSWORD",
        "mlflow": "MLFLOW_DB_PASSWORD",
        "hacpo": "PGPASSWORD",
    }.items():
        rows = dump(team, database, team.secrets[name])
        assert "COPY public." in rows
        for secret in told:
            assert secret not in rows, database


def command_line(pid: int) -> str:
    """Empty for what is gone, or a zombie that its new parent has yet to collect."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""


def encoded(secret: str) -> str:
    """As it travels in a header."""
    return base64.b64encode(f"hacpo:{secret}".encode()).decode()


def dump(team: Team, database: str, password: str) -> str:
    """All rows, as text."""
    found = subprocess.run(
        ["bash", "-euc", "source infra/postgres.sh; postgres_bin"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    server = ["-h", "127.0.0.1", "-p", team.outside["HACPO_POSTGRES_PORT"]]
    return subprocess.run(
        [f"{found.stdout.strip()}/pg_dump", *server, "-U", database, database],
        env=team.outside | {"PGPASSWORD": password},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_started_again_it_is_all_running_with_the_same_secrets(team: Team) -> None:
    before = (team.home / "team.env").read_text()
    again = team.run("bash", "-euc", START, known=False)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "Services: all running" in again.stdout
    assert (team.home / "team.env").read_text() == before
    refused = team.run(sys.executable, "infra/services.py", "start", known=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "use infra/team.sh" in refused.stderr


def test_stop_leaves_no_process_and_no_port(team: Team) -> None:
    pids = [int(p.read_text().split()[0]) for p in (team.home / "pids").iterdir()]
    assert len(pids) == 7
    stopped = team.run("bash", "infra/team.sh", "stop", known=False)
    assert stopped.returncode == 0, stopped.stderr
    assert "postgres" in stopped.stdout
    for port in PORTS:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", int(team.outside[port]))) != 0, port
    assert not [pid for pid in pids if command_line(pid)]
    ours = f"HACPO_HOME={team.home}\0".encode()
    for process in Path("/proc").glob("[0-9]*/environ"):
        try:
            assert ours not in process.read_bytes(), command_line(int(process.parent.name))
        except OSError:
            continue  # it has ended
    assert team.run("bash", "infra/team.sh", "stop", known=False).stdout == "Nothing was running\n"
