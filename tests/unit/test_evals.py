import math
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from hacpo.errors import DataError
from hacpo.evals.harness import evaluate_problems
from hacpo.types import Evaluation, FinishReason, Problem

Rows = list[tuple[Problem, str, FinishReason]]


@dataclass
class Sample:
    text: str
    finish_reason: FinishReason = "stop"
    token_ids: list[int] = field(default_factory=list)


@dataclass
class Engine:
    """Says what the script says: prompt token -> its samples; greedy has a script of its own."""

    sampled: dict[int, list[str]]
    greedy: dict[int, str] = field(default_factory=dict)
    calls: list[dict] = field(default_factory=list)

    def generate(self, prompts, num_samples, *, temperature, max_tokens, seed):
        self.calls.append(
            {
                "prompts": prompts,
                "num_samples": num_samples,
                "temperature": temperature,
                "max_tokens": max_tokens,
                "seed": seed,
            }
        )
        texts = {t: [text] for t, text in self.greedy.items()} if temperature == 0 else self.sampled
        return [
            [Sample(text, "length" if text == "cut" else "stop") for text in texts[token]]
            for (token,) in prompts
        ]


PROBLEMS = [
    Problem(id="p", problem="1 + 1", answer="2"),
    Problem(id="q", problem="{{ 1 + 2 }}", answer="[3"),  # neither a template nor a literal
    Problem(id="r", problem="2 + 2", answer="4"),
]
PROMPTS = {"p": [10], "q": [20], "r": [30]}
SAMPLED = {
    10: ["2", "2", "5", "2"],
    20: ["slow", "[3", "cut", "?"],
    30: ["slow", "slow", "slow", "slow"],
}
GREEDY = {10: "2", 20: "cut", 30: "slow"}


def grade(rows: Rows) -> list[tuple[float, str]]:
    def one(problem: Problem, text: str, finish_reason: FinishReason) -> tuple[float, str]:
        if finish_reason == "length":
            return 0.0, "truncated"
        if text == "slow":
            return math.nan, "timeout"
        if text == "?":
            return 0.0, "no_answer"
        return (1.0, "correct") if text == problem.answer else (0.0, "wrong")

    return [one(*row) for row in rows]


def evaluate(problems: list[Problem], engine: Engine, **changes) -> list[Evaluation]:
    arguments = {
        "render": lambda problem: PROMPTS[problem.id],
        "generate": engine.generate,
        "grade": grade,
        "agent": "a",
        "step": 7,
        "samples": 4,
        "greedy": True,
        "max_tokens": 33,
        "seed": 5,
    }
    return evaluate_problems(problems, **(arguments | changes))


def scores(evaluation: Evaluation) -> dict[str, list[float | None]]:
    return {
        problem.problem_id: [None if math.isnan(score) else score for score in problem.scores]
        for problem in evaluation.problems
    }


def test_every_sample_is_scored_as_by_hand():
    sampled, greedy = evaluate(PROBLEMS, Engine(SAMPLED, GREEDY))
    assert (sampled.agent, sampled.step, sampled.task) == ("a", 7, "held_out")
    assert (sampled.protocol, greedy.protocol) == ("avg@4", "greedy")
    assert scores(sampled) == {
        "p": [1.0, 1.0, 0.0, 1.0],
        "q": [None, 1.0, 0.0, 0.0],
        "r": [None, None, None, None],
    }
    assert sampled.mean == 4 / 7  # 4 correct of the 7 that were graded
    assert sampled.counts == {
        "correct": 4,
        "exact": 0,
        "equivalent": 0,
        "wrong": 1,
        "no_answer": 1,
        "truncated": 1,
        "timeout": 5,
        "error": 0,
    }
    assert scores(greedy) == {"p": [1.0], "q": [0.0], "r": [None]}
    assert greedy.mean == 0.5
    assert greedy.counts["truncated"] == 1
    assert sum(greedy.counts.values()) == 3


def test_each_prompt_is_given_once_with_the_number_of_samples_and_one_seed():
    engine = Engine(SAMPLED, GREEDY)
    evaluate(PROBLEMS, engine)
    shared = {"prompts": [[10], [20], [30]], "max_tokens": 33, "seed": 5}
    assert engine.calls == [
        shared | {"num_samples": 4, "temperature": 1.0},
        shared | {"num_samples": 1, "temperature": 0.0},
    ]


def test_all_responses_are_graded_in_one_call_with_their_problem_and_end():
    batches: list[Rows] = []

    def remember(rows: Rows) -> list[tuple[float, str]]:
        batches.append(rows)
        return grade(rows)

    evaluate(PROBLEMS, Engine(SAMPLED, GREEDY), grade=remember)
    (rows,) = batches
    assert len(rows) == 12 + 3
    assert rows[0] == (PROBLEMS[0], "2", "stop")
    assert rows[6] == (PROBLEMS[1], "cut", "length")


def test_the_order_of_problems_changes_nothing_but_the_order_of_scores():
    forward = evaluate(PROBLEMS, Engine(SAMPLED, GREEDY))
    backward = evaluate(PROBLEMS[::-1], Engine(SAMPLED, GREEDY))
    for one, other in zip(forward, backward, strict=True):
        assert scores(one) == scores(other)
        assert (one.mean, one.counts) == (other.mean, other.counts)
    assert [problem.problem_id for problem in backward[0].problems] == ["r", "q", "p"]


def test_problems_with_equal_text_are_kept_apart():
    twins = [Problem(id=name, problem="1 + 1", answer="2") for name in ("p", "r")]
    (sampled,) = evaluate(twins, Engine({10: ["2"], 30: ["3"]}), samples=1, greedy=False)
    assert scores(sampled) == {"p": [1.0], "r": [0.0]}


@pytest.mark.parametrize(
    ("samples", "greedy", "protocols"),
    [(4, False, ["avg@4"]), (0, True, ["greedy"]), (0, False, [])],
)
def test_only_the_protocols_asked_for_are_run(samples, greedy, protocols):
    engine = Engine(SAMPLED, GREEDY)
    evaluations = evaluate(PROBLEMS, engine, samples=samples, greedy=greedy)
    assert [evaluation.protocol for evaluation in evaluations] == protocols
    assert len(engine.calls) == len(protocols)


def test_a_later_evaluation_inherits_nothing_from_an_earlier_one():
    evaluate(PROBLEMS, Engine(SAMPLED, GREEDY))
    engine = Engine({10: ["2"], 30: ["4"]})
    (sampled,) = evaluate([PROBLEMS[0], PROBLEMS[2]], engine, samples=1, greedy=False, max_tokens=9)
    assert scores(sampled) == {"p": [1.0], "r": [1.0]}
    assert (engine.calls[0]["num_samples"], engine.calls[0]["max_tokens"]) == (1, 9)


def test_the_mean_is_nan_if_nothing_could_be_graded():
    (sampled,) = evaluate([PROBLEMS[2]], Engine(SAMPLED), greedy=False)
    assert math.isnan(sampled.mean)
    assert sampled.counts["timeout"] == 4


def test_no_problems_is_an_error_that_names_the_setting():
    with pytest.raises(DataError, match=r"problems\.held_out"):
        evaluate([], Engine({}))


@pytest.mark.parametrize("answers", [["2", "2", "2"], ["2"] * 5])
def test_an_engine_that_returns_another_number_of_samples_is_an_error(answers):
    with pytest.raises(ValueError, match="zip"):
        evaluate([PROBLEMS[0]], Engine({10: answers}), greedy=False)


def test_global_random_state_is_left_alone():
    def draw() -> tuple[float, float, float]:
        return random.random(), float(np.random.random()), float(torch.rand(()))

    def seed() -> None:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)

    seed()
    expected = draw()
    seed()
    evaluate(PROBLEMS, Engine(SAMPLED, GREEDY))
    assert draw() == expected


def test_nothing_is_printed_logged_or_imported_that_costs_seconds():
    code = """
import sys
from types import SimpleNamespace
from hacpo.evals.harness import evaluate_problems
from hacpo.types import Problem
assert "lm_eval" not in sys.modules
(evaluation,) = evaluate_problems(
    [Problem(id="p", problem="1 + 1", answer="2")],
    render=lambda problem: [1],
    generate=lambda *_, **__: [[SimpleNamespace(text="2", finish_reason="stop")]],
    grade=lambda rows: [(1.0, "correct")] * len(rows),
    agent="a", step=0, samples=1, greedy=False, max_tokens=4, seed=0,
)
assert evaluation.mean == 1
heavy = ("torch", "transformers", "vllm", "mlflow", "lm_eval.models.huggingface")
assert not [name for name in heavy if name in sys.modules]
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_256_problems_with_8_samples_cost_under_two_seconds_beside_the_engine(monkeypatch):
    problems = [Problem(id=f"p{i}", problem=f"{i} + 1", answer=str(i + 1)) for i in range(256)]
    engine = Engine({i: [str(i + n) for n in range(8)] for i in range(256)})
    ask = {"render": lambda problem: [int(problem.id[1:])], "samples": 8, "greedy": False}
    evaluate(PROBLEMS, Engine(SAMPLED, GREEDY))  # imports
    begun = time.monotonic()
    (sampled,) = evaluate(problems, engine, **ask)
    assert time.monotonic() - begun < 2
    assert sampled.mean == 1 / 8
    assert len(sampled.problems) == 256
