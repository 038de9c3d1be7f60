"""What an exported sweep must look like before a row of it is written."""

from typing import Annotated, Any, Self

from annotated_types import Len
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    ValidationError,
    model_validator,
)

from hacpo.errors import DataError
from hacpo.registry.base import CANCELLED, DONE, FAILED, PAUSED, QUEUED, RUNNING

_STATES = (DONE, RUNNING, QUEUED, PAUSED, CANCELLED, FAILED)


def check_export(data: dict[str, Any]) -> None:
    """
    Raises:
        DataError: something is missing, of another kind or unknown; names the first.
    """
    try:
        _Export.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(f"a damaged export: {where}: {first['msg'].lower()}") from None


class _Part(BaseModel):
    """Nothing is missing, nothing converted, nothing else there."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Agent(_Part):
    model: str
    identity: str


class _Step(_Part):
    step: NonNegativeInt
    agent: str
    reward_mean: float | None
    capability: float | None
    rollouts: NonNegativeInt
    tokens: NonNegativeInt
    seconds: float | None


class _Cost(_Part):
    agent: str
    rollouts_generated: NonNegativeInt
    rollouts_consumed: NonNegativeInt
    tokens: NonNegativeInt
    device_seconds: float | None


class _Evaluation(_Part):
    agent: str
    step: NonNegativeInt
    task: str
    protocol: str
    mean: float | None
    counts: dict[str, int]
    identity_key: str | None
    problems: list[Annotated[list[str | list[float | None]], Len(2, 2)]]


class _Cell(_Part):
    key: str = Field(min_length=1)
    label: str
    method: str
    combination: str
    seed: int
    config: dict[str, Any]
    gpus: NonNegativeInt
    rollouts: NonNegativeInt
    state: str
    steps_done: NonNegativeInt
    steps_total: NonNegativeInt
    agents: dict[str, _Agent] = Field(min_length=1)
    steps: list[_Step] = []
    costs: list[_Cost] = []
    evaluations: list[_Evaluation] = []

    @model_validator(mode="after")
    def _done_with_results(self) -> Self:
        if self.state not in _STATES:
            raise ValueError(f"unknown state {self.state!r}")
        if self.state == DONE and not (self.steps or self.evaluations):
            raise ValueError("done, but without any result")
        return self


class _Sweep(_Part):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")  # as a config's
    owner: str
    config: dict[str, Any]
    priority: int


class _Export(_Part):
    format: str
    version: int
    sweep: _Sweep
    cells: list[_Cell] = Field(min_length=1)
