"""Grading responses in killable workers, beside the sampling of the next agent."""

from hacpo.run import Grades, Run
from hacpo.types import UNGRADED, FinishReason, Problem, Rollout


def begin_grading(run: Run, step: int, agent: str, rollouts: list[Rollout]) -> None:
    """Start grading; `finish_grading` waits for it. What a killed process had begun is lost."""
    run.gradings[step, agent] = run.grader.submit(_grade, run, rollouts)


def finish_grading(run: Run, step: int, agent: str, rollouts: list[Rollout]) -> Grades:
    """Grades of an agent's rollouts in their order, begun already or not."""
    begun = run.gradings.pop((step, agent), None)
    return _grade(run, rollouts) if begun is None else begun.result()


def grade_rows(run: Run, rows: list[tuple[Problem, str, FinishReason]]) -> Grades:
    """(reward, outcome, reason) of each response, in order, under the truncation rule."""
    rule = run.config.rollout.truncated
    asked = [i for i, row in enumerate(rows) if rule == "grade" or row[2] == "stop"]
    graded = run.verifier.grade([(rows[i][0], rows[i][1]) for i in asked])
    cut = 0.0 if rule == "zero" else UNGRADED
    grades = [(cut, "truncated", "cut by the length limit")] * len(rows)
    for i, grade in zip(asked, graded, strict=True):
        reward = UNGRADED if grade.reward is None else grade.reward
        grades[i] = (reward, grade.outcome, grade.reason)
    return grades


def _grade(run: Run, rollouts: list[Rollout]) -> Grades:
    problems = {problem.id: problem for problem in run.train_problems}
    rows = [(problems[r.problem_id], r.text, r.finish_reason) for r in rollouts]
    return grade_rows(run, rows)
