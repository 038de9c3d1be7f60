import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hacpo.errors import ConfigError
from hacpo.task_settings import VerifierConfig
from hacpo.types import Problem
from hacpo.verifiers import Grade, VerifierPool
from tests.unit.reward_source import REWARD

PROBLEM = Problem(id="p", problem="37+58=", answer="95")


@pytest.fixture(autouse=True)
def own_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person's folder with a reward in it, as working directory."""
    (tmp_path / "rewards.py").write_text(REWARD)
    monkeypatch.chdir(tmp_path)


def custom(
    *, workers: int = 1, timeout: float = 30.0, reward: str = "rewards:reward"
) -> VerifierConfig:
    return VerifierConfig(type="custom", reward=reward, workers=workers, timeout=timeout)


def grade(pool: VerifierPool, *responses: str) -> list[Grade]:
    return pool.grade([(PROBLEM, response) for response in responses])


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return stat.rpartition(") ")[2][0] not in "ZX"
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return shown.stdout.strip()[:1] not in ("", "Z")


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def test_a_pool_grades_by_the_configured_rule() -> None:
    with VerifierPool(VerifierConfig(type="marker", marker="=>")) as pool:
        assert [g.outcome for g in grade(pool, "=>95", "#95")] == ["correct", "no_answer"]
    with VerifierPool(VerifierConfig()) as pool:
        assert [g.outcome for g in grade(pool, r"\boxed{95}", "#95")] == ["correct", "no_answer"]


def test_grades_come_in_the_order_of_the_answers() -> None:
    values = [round(i * 0.01, 2) for i in range(70)]
    pauses = [0.05 if i % 9 == 0 else 0 for i in range(70)]
    with VerifierPool(custom(workers=3)) as pool:
        rows = [f"value {v} {p}" for v, p in zip(values, pauses, strict=True)]
        grades = grade(pool, *rows)
        assert [g.reward for g in grades] == values
        assert pool.grade([]) == []


def test_a_step_of_answers_is_graded_in_milliseconds() -> None:
    with VerifierPool(VerifierConfig(type="marker")) as pool:
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            grades = grade(pool, *["7+8+0=5,1.3+5+1=9,0#95"] * 128)
            seconds.append(time.perf_counter() - start)
            assert all(g.outcome == "correct" for g in grades)
    assert min(seconds) < 0.1


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("stuck", ["hang", "regex"])
def test_an_answer_that_hangs_is_ungraded_and_the_others_go_on(workers: int, stuck: str) -> None:
    with VerifierPool(custom(workers=workers, timeout=0.7)) as pool:
        start = time.monotonic()
        grades = grade(pool, "true", stuck, "true", "no", stuck, "true")
        assert time.monotonic() - start < 10
    outcomes = ["correct", "timeout", "correct", "wrong", "timeout", "correct"]
    assert [g.outcome for g in grades] == outcomes
    assert [g.reward is None for g in grades] == [o == "timeout" for o in outcomes]
    assert grades[1].reason == "no grade within 0.7 s"


def test_the_limit_holds_for_each_answer_not_for_all_together() -> None:
    with VerifierPool(custom(timeout=1.5)) as pool:
        grades = grade(pool, *["value 1 0.25"] * 10)  # 2.5 s in all
    assert [g.outcome for g in grades] == ["correct"] * 10


def test_what_a_stuck_answer_started_ends_with_it() -> None:
    with VerifierPool(custom(timeout=1.0)) as pool:
        assert grade(pool, "child")[0].outcome == "timeout"
        child = int(Path("child_pid").read_text())
        assert eventually(lambda: not is_running(child))


@pytest.mark.parametrize(
    ("response", "reason"),
    [("exit", "ended with exit code 3"), ("crash", "died of SIGSEGV")],
)
def test_an_answer_that_ends_its_process_is_ungraded_and_the_others_go_on(
    response: str, reason: str
) -> None:
    with VerifierPool(custom()) as pool:
        grades = grade(pool, "true", response, "true", response, "no")
    assert [g.outcome for g in grades] == ["correct", "error", "correct", "error", "wrong"]
    assert grades[1].reward is None
    assert reason in grades[1].reason


def test_an_answer_that_takes_too_much_memory_is_ungraded_and_the_others_go_on() -> None:
    with VerifierPool(custom(), memory_bytes=1 << 30) as pool:
        grades = grade(pool, "memory", "true")
    assert [g.outcome for g in grades] == ["error", "correct"]
    assert "MemoryError" in grades[0].reason


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("raise", "ValueError: no such unit"),
        ("unprintable", "Unprintable: "),
        ("system_exit", "SystemExit: 0"),
        ("none", "the reward returned None"),
        ("nan", "the reward returned nan"),
        ("infinite", "the reward returned inf"),
        ("text", "the reward returned '1', not a number"),
        ("list", "TypeError: "),
    ],
)
def test_a_reward_that_fails_or_gives_no_number_is_ungraded(response: str, reason: str) -> None:
    with VerifierPool(custom()) as pool:
        pool.grade([(PROBLEM, "true")])
        pid = Path("pid").read_text()
        grades = grade(pool, response, "true")
        assert Path("pid").read_text() == pid  # the same process went on
    assert [g.outcome for g in grades] == ["error", "correct"]
    assert grades[0].reward is None
    assert grades[0].reason.startswith(reason)


def test_numbers_and_truth_values_are_rewards() -> None:
    with VerifierPool(custom()) as pool:
        grades = grade(pool, "true", "no", "value 0.25 0", "problem")
    assert [(g.reward, g.outcome) for g in grades] == [
        (1.0, "correct"),
        (0.0, "wrong"),
        (0.25, "wrong"),  # partial credit is not a correct answer
        (1.0, "correct"),
    ]


def test_what_a_reward_prints_or_reads_does_not_disturb_its_grades() -> None:
    with VerifierPool(custom()) as pool:
        grades = grade(pool, "print", "true", "read", "print")
    assert [g.outcome for g in grades] == ["wrong", "correct", "wrong", "wrong"]


def test_answers_of_any_characters_reach_the_reward() -> None:
    problem = Problem(id="p", problem="\u03c0?", answer="\ud800 \u2028\x00")
    with VerifierPool(VerifierConfig(type="marker")) as pool:
        grades = pool.grade([(problem, "a\nb#\ud800 \u2028\x00")])
    assert grades[0].outcome == "correct"


def test_of_a_very_long_response_the_end_is_graded() -> None:
    with VerifierPool(VerifierConfig(type="marker")) as pool:
        grades = grade(pool, "1" * 3_000_000 + "#95", "#95" + " " * 3_000_000)
    assert [g.outcome for g in grades] == ["correct", "no_answer"]


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        ("nowhere:reward", "No module named 'nowhere'"),
        ("rewards:other", "module rewards has no 'other'"),
        ("rewards:json", "'json' of module rewards is no function"),
        ("broken:reward", "SyntaxError"),
        ("quits:reward", "exit code 7"),
    ],
)
def test_a_reward_that_cannot_be_imported_is_refused_before_any_grade(
    reward: str, said: str
) -> None:
    Path("broken.py").write_text("def reward(")
    Path("quits.py").write_text("import os; os._exit(7)")
    with pytest.raises(ConfigError) as error:
        VerifierPool(custom(reward=reward, workers=2))
    assert str(error.value).startswith(f"verifier.reward {reward!r}: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_module_of_the_working_directory_does_not_replace_a_standard_one() -> None:
    Path("json.py").write_text("raise ImportError")
    Path("queue.py").write_text("raise ImportError")
    with VerifierPool(custom()) as pool:
        assert grade(pool, "true")[0].outcome == "correct"


def test_a_pool_outlives_the_thread_that_made_it() -> None:
    made: list[VerifierPool] = []
    thread = threading.Thread(target=lambda: made.append(VerifierPool(custom())))
    thread.start()
    thread.join()
    time.sleep(0.2)
    with made[0] as pool:
        assert [g.outcome for g in grade(pool, "true", "exit", "true")] == [
            "correct",
            "error",
            "correct",
        ]


def test_threads_may_grade_at_the_same_time() -> None:
    results: dict[int, list[float]] = {}
    with VerifierPool(custom(workers=2)) as pool:

        def work(number: int) -> None:
            results[number] = [g.reward for g in grade(pool, *[f"value 0.{number} 0"] * 40)]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {number: [number / 10] * 40 for number in range(4)}


def test_closing_ends_the_workers_and_grading_afterwards_is_an_error() -> None:
    pool = VerifierPool(custom())
    grade(pool, "true")
    pid = int(Path("pid").read_text())
    assert is_running(pid)
    pool.close()
    pool.close()
    assert not is_running(pid)
    with pytest.raises(ValueError, match="closed"):
        grade(pool, "true")


def test_closing_ends_a_grading_that_is_stuck() -> None:
    pool = VerifierPool(custom(timeout=60))
    errors: list[BaseException] = []

    def work() -> None:
        try:
            grade(pool, "hang", "true")
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert eventually(Path("pid").exists)
    pool.close()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert [str(error) for error in errors] == ["this verifier pool is closed"]


def test_an_interrupted_grading_ends_the_workers() -> None:
    with VerifierPool(custom(timeout=60)) as pool:
        grade(pool, "true")
        pid = int(Path("pid").read_text())
        # A shell starts what it puts into the background with the signal ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            grade(pool, "hang", "true")
        signal.signal(signal.SIGINT, before)
        assert not is_running(pid)


@pytest.mark.parametrize("activity", ["true", "hang", "regex"])
def test_workers_end_when_their_parent_is_killed(activity: str) -> None:
    script = f"""
        import time
        from hacpo.task_settings import VerifierConfig
        from hacpo.types import Problem
        from hacpo.verifiers import VerifierPool

        config = VerifierConfig(type="custom", reward="rewards:reward", timeout=60)
        pool = VerifierPool(config)
        pool.grade([(Problem(id="p", problem="p", answer="95"), {activity!r})])
        time.sleep(60)
    """
    root = Path(__file__).parents[2]
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    try:
        assert eventually(lambda: Path("pid").exists() and Path("pid").read_text() != "", 60)
        worker = int(Path("pid").read_text())
        time.sleep(0.3)  # into the sleep, the regular expression, or the next wait
        assert is_running(worker)
        parent.kill()
        parent.wait()
        assert eventually(lambda: not is_running(worker))
    finally:
        parent.kill()
        parent.wait()
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(Path("pid").read_text()), signal.SIGKILL)


def test_a_worker_starts_without_heavy_imports() -> None:
    code = (
        "import sys, hacpo.verifiers.worker; "
        "print(*{'pydantic', 'torch', 'numpy', 'hacpo.config'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.stdout.strip() == ""


def test_what_a_reward_prints_goes_to_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with VerifierPool(custom(), log=tmp_path / "verifier.log") as pool:
        grade(pool, "print", "true")
    assert (tmp_path / "verifier.log").read_text().count('[1.0, "correct", ""]') == 2
    assert capfd.readouterr().err == ""
