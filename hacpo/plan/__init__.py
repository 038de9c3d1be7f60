"""What a run will take in memory and time, before it is started."""

from hacpo.plan.calibrate import calibrate
from hacpo.plan.memory import DoesNotFitError
from hacpo.plan.plan import Plan, make_plan

__all__ = ["DoesNotFitError", "Plan", "calibrate", "make_plan"]
