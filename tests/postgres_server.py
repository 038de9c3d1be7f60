"""A PostgreSQL server of a test's own, which it may stop, restart and kill."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers import free_port


def postgres_bin() -> Path | None:
    """Where initdb and pg_ctl lie: on PATH, or where Debian puts them."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return debian[-1].parent if debian else None


@dataclass(frozen=True)
class OwnPostgres:
    """One cluster with a database `hacpo`, on loopback, with a password."""

    folder: Path
    port: int
    password: str = "not-a-secret"

    @property
    def url(self) -> str:
        return f"postgresql://hacpo:{self.password}@127.0.0.1:{self.port}/hacpo"

    def start(self) -> None:
        # Its socket lies in /tmp: the folder's path may be too long for one.
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k /tmp"
        self._run("pg_ctl", "-D", "data", "-l", "log", "-w", "start", "-o", options)

    def stop(self, mode: str = "immediate") -> None:
        """`immediate` is a crash: connections break, the next start recovers."""
        self._run("pg_ctl", "-D", "data", "-m", mode, "-w", "stop")

    def create(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres")
            shutil.chown(secret, "postgres")
        self._run(
            "initdb", "-D", "data", "-U", "hacpo", "-E", "UTF8", "-A", "scram-sha-256",
            "--pwfile", "password",
        )  # fmt: skip
        self.start()
        environment = {"PGPASSWORD": self.password}
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "hacpo", "hacpo",
                  **environment)  # fmt: skip

    def _run(self, program: str, *arguments: str, **environment: str) -> None:
        found = postgres_bin()
        assert found is not None
        command = [str(found / program), *arguments]
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            command = ["runuser", "-u", "postgres", "--", *command]
        with (self.folder / "pg_ctl.log").open("ab") as log:  # a pipe would be inherited
            subprocess.run(
                command,
                cwd=self.folder,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """In a folder of its own: those of pytest are closed to the user who runs it."""
    with tempfile.TemporaryDirectory(prefix="hacpo-postgres-") as folder:
        server = OwnPostgres(Path(folder), free_port())
        server.create()
        try:
            yield server
        finally:
            server.stop()
