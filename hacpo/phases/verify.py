"""Phase 2: every response is graded in a killable worker; what cannot be graded is NaN, not 0."""

from hacpo.phases.rollout import problems_of
from hacpo.run import Run, open_run
from hacpo.types import UNGRADED, FinishReason, Problem


def verify(run_id: str, step: int, agents: tuple[str, ...]) -> None:
    """Grade each agent's rollouts; an agent whose grades are on disk is done."""
    run = open_run(run_id)
    problems = {problem.id: problem for problem in problems_of(run, step)}
    for name in agents:
        if run.ledger.phase_file(step, "verify", name).exists():
            continue
        rollouts = run.ledger.read_rollouts(step, name)
        rows = [(problems[r.problem_id], r.text, r.finish_reason) for r in rollouts]
        with run.timed(name, "verify"):
            grades = grade_rows(run, rows)
            by_id = {r.id: grade for r, grade in zip(rollouts, grades, strict=True)}
            run.ledger.write_grades(step, name, by_id)


def grade_rows(
    run: Run, rows: list[tuple[Problem, str, FinishReason]]
) -> list[tuple[float, str, str]]:
    """(reward, outcome, reason) of each response, in order, under the truncation rule."""
    rule = run.config.rollout.truncated
    asked = [i for i, row in enumerate(rows) if rule == "grade" or row[2] == "stop"]
    graded = run.verifier.grade([(rows[i][0], rows[i][1]) for i in asked])
    cut = 0.0 if rule == "zero" else UNGRADED
    grades = [(cut, "truncated", "cut by the length limit")] * len(rows)
    for i, grade in zip(asked, graded, strict=True):
        grades[i] = (grade.reward, grade.outcome, grade.reason)
    return grades
