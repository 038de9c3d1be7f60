"""Benchmarks through lm-eval with a scripted model: scores, shapes, records, resuming."""

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hacpo.benchmarks.catalogue import BENCHMARKS, benchmark
from hacpo.benchmarks.files import read_set
from hacpo.errors import DataError, StorageError
from hacpo.evals.benchmark import BenchmarkResult, evaluate_benchmark
from hacpo.evals.records import Answer, Records
from hacpo.task_settings import VerifierConfig
from hacpo.types import UNGRADED, FinishReason, Problem
from hacpo.verifiers import VerifierPool
from tests.benchmark_data import REAL, SMALL, needs_real

Say = Callable[[Problem, int], str]
"""Problem and number of the sample -> response."""
HERE = [name for name in BENCHMARKS if name != "aime25"]


@dataclass
class Sample:
    text: str
    finish_reason: FinishReason = "stop"
    token_ids: list[int] = field(default_factory=lambda: [1, 2, 3])


class Scripted:
    """An engine whose prompt is the problem's number; may be interrupted at a call."""

    def __init__(self, problems: list[Problem], say: Say, *, fails_at: int | None = None) -> None:
        self.problems = problems
        self.say = say
        self.fails_at = fails_at
        self.asked: list[list[int]] = []
        self.options: list[dict[str, Any]] = []

    def __call__(
        self, prompts: list[list[int]], num_samples: int, **options: Any
    ) -> list[list[Sample]]:
        if len(self.asked) == self.fails_at:
            raise KeyboardInterrupt
        self.asked.append([prompt[0] for prompt in prompts])
        self.options.append({"num_samples": num_samples, **options})
        return [
            [Sample(self.say(self.problems[prompt[0]], k)) for k in range(num_samples)]
            for prompt in prompts
        ]


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifierPool]:
    with VerifierPool(VerifierConfig(type="math")) as pool:
        yield pool


def right(problem: Problem, sample: int) -> str:
    return f"So it is \\boxed{{{problem.answer}}}."


def evaluate(
    name: str,
    problems: list[Problem],
    engine: Scripted,
    pool: VerifierPool,
    path: Path,
    *,
    chunk_rows: int = 256,
    made_with: dict[str, str] | None = None,
) -> BenchmarkResult:
    def grade(rows: list[tuple[Problem, str, FinishReason]]) -> list[tuple[float, str]]:
        grades = pool.grade([(problem, text) for problem, text, _ in rows])
        return [(UNGRADED if g.reward is None else g.reward, g.outcome) for g in grades]

    made_with = made_with or {"model": "scripted"}
    with Records(path, made_with) as records:
        return evaluate_benchmark(
            benchmark(name),
            problems,
            prompts=[[i] for i in range(len(problems))],
            generate=engine,
            grade=grade,
            seed=lambda index: 1000 + index,
            records=records,
            made_with=made_with,
            max_tokens=77,
            chunk_rows=chunk_rows,
        )


@needs_real
@pytest.mark.parametrize("name", HERE)
def test_right_answers_to_the_real_problems_are_all_right_in_seconds(
    name: str, pool: VerifierPool, tmp_path: Path
):
    problems = read_set(benchmark(name), REAL)
    begun = time.process_time()
    result = evaluate(name, problems, Scripted(problems, right), pool, tmp_path / "a.jsonl")
    assert time.process_time() - begun < 20
    assert result.problems == len(problems)
    assert result.main == 1
    assert sum(result.counts.values()) == result.counts["exact"] == len(problems) * result.samples
    assert set(result.stderr.values()) == {0.0}


@pytest.mark.parametrize("name", HERE)
def test_every_benchmark_runs_on_its_small_file(name: str, pool: VerifierPool, tmp_path: Path):
    problems = read_set(benchmark(name), SMALL)
    engine = Scripted(problems, right)
    result = evaluate(name, problems, engine, pool, tmp_path / "a.jsonl")
    assert (result.benchmark, result.main) == (name, 1)
    sampled = {"num_samples": 30, "temperature": 1.0}
    greedy = {"num_samples": 1, "temperature": 0.0}
    protocol = sampled if name == "aime24" else greedy
    assert engine.options == [protocol | {"max_tokens": 77, "seed": 1000}]


def test_greedy_metrics_by_hand(pool: VerifierPool, tmp_path: Path):
    problems = read_set(benchmark("math500"), SMALL)[1:4]  # p - q; 14/3; 9

    def say(problem: Problem, sample: int) -> str:
        script = {problems[0].id: r"\boxed{p-q}", problems[1].id: "no box"}
        return script.get(problem.id, r"\boxed{10^{10^{10}}}")

    result = evaluate("math500", problems, Scripted(problems, say), pool, tmp_path / "a.jsonl")
    assert result.protocol == "greedy"
    assert result.metrics == {
        "avg@1": pytest.approx(1 / 3),
        "no_answer": pytest.approx(1 / 3),
        "ungraded": pytest.approx(result.counts["timeout"] / 3),
        "truncated": 0.0,
        "tokens": 3.0,
    }
    assert result.stderr["avg@1"] == pytest.approx(1 / 3)  # sd of 1, 0, 0 is 1/sqrt(3)
    assert result.counts["exact"] == result.counts["no_answer"] == 1
    assert result.scores == {problems[0].id: [1.0], problems[1].id: [0.0], problems[2].id: [0.0]}


def test_thirty_samples_give_every_metric(pool: VerifierPool, tmp_path: Path):
    problems = read_set(benchmark("aime24"), SMALL)

    def say(problem: Problem, sample: int) -> str:
        solved = sample < 3 if problem is problems[0] else False
        return right(problem, sample) if solved else r"\boxed{1000}"

    result = evaluate("aime24", problems, Scripted(problems, say), pool, tmp_path / "a.jsonl")
    assert result.protocol == "avg@30"
    accuracies = {name: value for name, value in result.metrics.items() if "@" in name}
    assert accuracies == {
        "avg@30": pytest.approx(0.05),
        "best@30": 0.5,
        "best@30_verl": pytest.approx((1 - 0.9**30) / 2),
        "pass@1": pytest.approx(0.05),
        "pass@2": pytest.approx((1 - 27 * 26 / (30 * 29)) / 2),
        "pass@4": pytest.approx((1 - math.comb(27, 4) / math.comb(30, 4)) / 2),
        "pass@8": pytest.approx((1 - math.comb(27, 8) / math.comb(30, 8)) / 2),
        "pass@16": pytest.approx((1 - math.comb(27, 16) / math.comb(30, 16)) / 2),
        "pass@30": 0.5,
    }
    assert result.stderr.keys() == accuracies.keys()
    assert result.stderr["best@30"] == pytest.approx(0.5)


def test_a_single_problem_has_no_standard_error(pool: VerifierPool, tmp_path: Path):
    problems = read_set(benchmark("gsm8k"), SMALL)[:1]
    result = evaluate("gsm8k", problems, Scripted(problems, right), pool, tmp_path / "a.jsonl")
    assert result.stderr == {"avg@1": None}


def test_interrupted_it_goes_on_behind_what_is_finished(pool: VerifierPool, tmp_path: Path):
    problems = [Problem(id=f"p{i}", problem=f"{i}?", answer=str(i)) for i in range(10)]

    def say(problem: Problem, sample: int) -> str:
        return f"\\boxed{{{problem.answer if int(problem.answer) % 3 else 'x'}}}"

    whole = evaluate("gsm8k", problems, Scripted(problems, say), pool, tmp_path / "whole.jsonl")
    path, broken = tmp_path / "a.jsonl", Scripted(problems, say, fails_at=2)
    with pytest.raises(KeyboardInterrupt):
        evaluate("gsm8k", problems, broken, pool, path, chunk_rows=3)
    assert broken.asked == [[0, 1, 2], [3, 4, 5]]
    with path.open("ab") as file:
        file.write(b'{"id": "p6", "answers": [{"te')  # killed while writing
    rest = Scripted(problems, say)
    resumed = evaluate("gsm8k", problems, rest, pool, path, chunk_rows=3)
    assert rest.asked == [[6, 7, 8], [9]]
    assert resumed == whole
    again = Scripted(problems, say)
    assert evaluate("gsm8k", problems, again, pool, path) == whole
    assert again.asked == []
    ids = [json.loads(line)["id"] for line in path.read_text().splitlines()[1:]]
    assert ids == [problem.id for problem in problems]


def test_a_limit_is_a_beginning_of_the_whole(pool: VerifierPool, tmp_path: Path):
    problems = [Problem(id=f"p{i}", problem=f"{i}?", answer=str(i)) for i in range(6)]
    path = tmp_path / "a.jsonl"
    some = evaluate("gsm8k", problems[:2], Scripted(problems, right), pool, path)
    rest = Scripted(problems, right)
    assert evaluate("gsm8k", problems, rest, pool, path).problems == 6
    assert (some.problems, rest.asked) == (2, [[2, 3, 4, 5]])


ANSWER = Answer(text="\\boxed{1}", finish_reason="stop", tokens=3, outcome="exact", score=1.0)
MADE_WITH = {"tokenizer": "t1", "model": "m1", "data": "d1", "prompt": "p1", "verifier": "v1"}


@pytest.mark.parametrize("changed", list(MADE_WITH))
def test_answers_made_with_something_else_are_refused_and_kept(tmp_path: Path, changed: str):
    path = tmp_path / "a.jsonl"
    with Records(path, MADE_WITH) as records:
        records.append([("p", [ANSWER])])
    before = path.read_bytes()
    with pytest.raises(DataError) as error:
        Records(path, MADE_WITH | {changed: "other"})
    assert f"answers were made with another {changed} ({MADE_WITH[changed]}, now other)" in str(
        error.value
    )
    assert "--fresh" in str(error.value)
    assert "\n" not in str(error.value)
    assert path.read_bytes() == before
    with Records(path, MADE_WITH) as records:
        assert records["p"] == [ANSWER]
    with Records(path, MADE_WITH | {changed: "other"}, fresh=True) as records:
        assert len(records) == 0


def test_two_processes_do_not_write_one_file(tmp_path: Path):
    with (
        Records(tmp_path / "a.jsonl", MADE_WITH),
        pytest.raises(StorageError, match="another process evaluates into this file"),
    ):
        Records(tmp_path / "a.jsonl", MADE_WITH)


@pytest.mark.parametrize("line", ["not json", "[1]", '{"id": "p", "answers": [{"text": "x"}]}'])
def test_a_damaged_line_is_named(tmp_path: Path, line: str):
    path = tmp_path / "a.jsonl"
    Records(path, MADE_WITH).close()
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(StorageError, match=r"a\.jsonl line 2: damaged; --fresh begins anew"):
        Records(path, MADE_WITH)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="permissions"):
        Records(tmp_path / "file" / "a.jsonl", MADE_WITH)


def test_the_tasks_work_under_lm_eval_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With any model of lm-eval: it reads our file, renders the paper's prompt, and grades."""
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    from hacpo.evals.harness import TASKS

    problems = read_set(benchmark("math500"), SMALL)
    answers = {
        f"{p.problem} Let's think step by step and output the final answer within \\boxed{{}}.": p
        for p in problems
    }

    class Foreign(LM):  # type: ignore[misc]
        def generate_until(self, requests: list[Any]) -> list[str]:
            assert {request.args[1]["max_gen_toks"] for request in requests} == {8192}
            found = [answers[request.args[0]] for request in requests]
            return [right(p, 0) if p is not problems[0] else "?" for p in found]

        def loglikelihood(self, requests: list[Any]) -> Any:
            raise NotImplementedError

        def loglikelihood_rolling(self, requests: list[Any]) -> Any:
            raise NotImplementedError

    monkeypatch.setenv("HACPO_DATA", str(SMALL))
    manager = TaskManager(include_path=str(TASKS), include_defaults=False)
    output = simple_evaluate(model=Foreign(), tasks=["hacpo_math500"], task_manager=manager)
    assert output["results"]["hacpo_math500"]["avg@1,all"] == 0.75
    assert output["results"]["hacpo_math500"]["no_answer,all"] == 0.25
