"""Grading inside Prefect: flows and tasks run in threads, where no signal can be handled."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.cli_runner import environment

SCRIPT = r"""
    import threading
    from prefect import flow, task
    from prefect.testing.utilities import prefect_test_harness
    from hacpo.verifiers import grade

    @task
    def graded(response):
        assert threading.current_thread() is not threading.main_thread()
        return grade(response, r"\frac12").outcome

    @flow
    def grading():
        answers = [r"\boxed{0.5}", r"\boxed{9^{9^{9^9}}}", r"\boxed{\frac12}", r"\boxed{7}"]
        return [future.result() for future in graded.map(answers)]

    with prefect_test_harness(server_startup_timeout=200):
        print(grading())
"""


@pytest.mark.slow
def test_grading_works_in_tasks_of_a_flow(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        env=environment() | {"PREFECT_HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['equivalent', 'timeout', 'exact', 'wrong']\n"
