"""Graders in processes of their own, so that an answer that hangs or crashes costs one row."""

import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from hacpo.errors import ConfigError
from hacpo.task_settings import VerifierConfig
from hacpo.types import Problem
from hacpo.verifiers.grades import Grade, ungraded
from hacpo.verifiers.process import WorkerProcess
from hacpo.verifiers.worker import Row, Setup

logger = logging.getLogger(__name__)

MAX_RESPONSE_CHARS = 100_000
"""Of a longer response the end is graded: answers stand there."""
MEMORY_BYTES = 4 << 30
"""Default limit of one worker's data: a custom reward may import much."""
MATH_MEMORY_BYTES = 1 << 30
"""The same for type math, which imports sympy alone."""
START_SECONDS = 120.0
"""For importing a custom reward with all that it imports."""
MAX_CHUNK = 32
"""Rows that travel to a worker at once."""


class VerifierPool:
    """Grades answers in `config.workers` processes, which start at once; usable from any thread.

    A worker that exceeds `config.timeout` on one answer is killed and replaced: that row is
    ungraded (`timeout`), the others go on. One that dies leaves its row ungraded (`error`).
    Workers end with this process, however it ends.

    Args:
        config: what grades, and how.
        memory_bytes: limit of a worker's data; None: by the type.
        log: a file that gets what a reward prints; None: this process's stderr.

    Raises:
        ConfigError: a worker cannot start, such as for a reward that cannot be imported.
    """

    def __init__(
        self, config: VerifierConfig, *, memory_bytes: int | None = None, log: Path | None = None
    ) -> None:
        self._config = config
        self._log = log
        self._setup = Setup(
            type=config.type,
            marker=config.marker,
            reward=config.reward,
            folder=config.folder,
            strict=config.strict,
            memory_bytes=memory_bytes
            or (MATH_MEMORY_BYTES if config.type == "math" else MEMORY_BYTES),
        )
        self._one_caller = threading.Lock()
        self._state = threading.Lock()
        self._closed = False
        self._workers: list[WorkerProcess | None] = [None] * config.workers
        # On Linux a worker also dies with the thread that started it: these live as long as the
        # pool, a caller's thread may not.
        self._threads = ThreadPoolExecutor(config.workers, thread_name_prefix="verifier")
        try:
            list(self._threads.map(self._start, range(config.workers)))
        except BaseException:
            self.close()
            raise

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Grade (problem, response) pairs, in their order; an interruption closes the pool.

        Raises:
            ConfigError: a worker that died could not be replaced.
        """
        rows: list[Row] = [
            (problem.id, problem.problem, problem.answer, response[-MAX_RESPONSE_CHARS:])
            for problem, response in items
        ]
        grades: list[Grade | None] = [None] * len(rows)
        with self._one_caller:
            if self._closed:
                raise ValueError("this verifier pool is closed")
            size = max(1, min(MAX_CHUNK, -(-len(rows) // len(self._workers))))
            chunks = deque(
                deque(range(len(rows))[at : at + size]) for at in range(0, len(rows), size)
            )
            serving = [
                self._threads.submit(self._serve, slot, chunks, rows, grades)
                for slot in range(len(self._workers))
            ]
            try:
                for future in serving:
                    future.result()
            except BaseException:  # workers are in the middle of rows that nobody waits for
                chunks.clear()
                self.close()
                raise
        done = [grade for grade in grades if grade is not None]
        _log(done)
        return done

    def close(self) -> None:
        """End the workers; a second call does nothing."""
        with self._state:
            self._closed = True
            for worker in self._workers:
                if worker is not None:
                    worker.kill()
        self._threads.shutdown()
        for slot in range(len(self._workers)):
            self._retire(slot)

    def __enter__(self) -> "VerifierPool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _serve(
        self,
        slot: int,
        chunks: "deque[deque[int]]",
        rows: list[Row],
        grades: list[Grade | None],
    ) -> None:
        """Grade chunks with one worker until none is left."""
        while chunks:
            try:
                chunk = chunks.popleft()
            except IndexError:  # another worker took it
                return
            while chunk:
                self._grade_chunk(slot, chunk, rows, grades)

    def _grade_chunk(
        self, slot: int, chunk: "deque[int]", rows: list[Row], grades: list[Grade | None]
    ) -> None:
        """Grade rows of a chunk until it is empty or its worker is lost, with one row."""
        worker = self._workers[slot] or self._start(slot)
        limit = self._config.timeout
        try:
            worker.send([rows[index] for index in chunk], limit)
            while chunk:
                reward, outcome, reason = worker.receive(limit)
                grades[chunk.popleft()] = Grade(reward, outcome, reason)
        except TimeoutError:
            self._retire(slot)
            grades[chunk.popleft()] = ungraded("timeout", f"no grade within {limit:g} s")
        except EOFError:
            end = self._retire(slot)
            grades[chunk.popleft()] = ungraded("error", f"the verifier's process {end}")

    def _start(self, slot: int) -> WorkerProcess:
        with self._state:
            if self._closed:
                raise ValueError("this verifier pool is closed")
            try:
                worker = self._workers[slot] = WorkerProcess(self._log)
            except OSError as error:
                raise ConfigError(f"cannot start a verifier process: {error.strerror}") from None
        reward = self._config.reward
        subject = f"verifier.reward {reward!r}" if reward else f"verifier {self._config.type}"
        try:
            worker.send(asdict(self._setup), START_SECONDS)
            reply = worker.receive(START_SECONDS)
        except TimeoutError:
            self._retire(slot)
            raise ConfigError(f"{subject}: did not start within {START_SECONDS:g} s") from None
        except EOFError:
            end = self._retire(slot)
            raise ConfigError(f"{subject}: its process {end} while starting") from None
        if "error" in reply:
            self._retire(slot)
            remedy = f"; write module:function, importable from {os.getcwd()}" if reward else ""
            raise ConfigError(f"{subject}: {reply['error']}{remedy}")
        return worker

    def _retire(self, slot: int) -> str:
        """End a slot's worker; returns for people how it ended."""
        with self._state:
            worker, self._workers[slot] = self._workers[slot], None
        return "was closed" if worker is None else worker.end()


def _log(grades: list[Grade]) -> None:
    """How a batch came out; ungraded answers are worth a warning, with one reason."""
    counts = Counter(grade.outcome for grade in grades)
    shown = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    failed = next((grade for grade in grades if grade.reward is None), None)
    if failed is not None:
        logger.warning("graded %s; ungraded for example: %s", shown, failed.reason)
    elif grades:
        logger.info("graded %s", shown)
