"""Phase 2: every response is graded in a killable worker; what cannot be graded is NaN, not 0."""

from hacpo.phases.grading import finish_grading
from hacpo.run import open_run


def verify(run_id: str, step: int, agents: tuple[str, ...]) -> None:
    """Grade each agent's rollouts; an agent whose grades are on disk is done."""
    run = open_run(run_id)
    for name in agents:
        if run.ledger.phase_file(step, "verify", name).exists():
            continue
        rollouts = run.ledger.read_rollouts(step, name)
        with run.timed(name, "verify"):
            grades = finish_grading(run, step, name, rollouts)
            by_id = {r.id: grade for r, grade in zip(rollouts, grades, strict=True)}
            run.ledger.write_grades(step, name, by_id)
