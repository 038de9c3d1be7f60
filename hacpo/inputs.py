"""What cells read from outside their config, by content: models, problems, benchmarks.

Loads no torch.
"""

from functools import lru_cache
from pathlib import Path

from hacpo.benchmarks.catalogue import SETS, benchmark
from hacpo.benchmarks.files import read_set
from hacpo.errors import DataError
from hacpo.models.identity import is_on_hub, model_identity
from hacpo.places import data_folder
from hacpo.problems import check_disjoint, check_enough, load_problems, problems_digest
from hacpo.settings import AgentConfig
from hacpo.task_settings import ProblemsConfig


class Inputs:
    """Identities of what is here.

    Args:
        home: where identities of large models are remembered.
    """

    def __init__(self, home: Path) -> None:
        self._home = home

    def model(self, agent: AgentConfig) -> str:
        """The identity of an agent's model.

        Raises:
            DataError: nothing there, or nothing that can be used.
        """
        return model_identity(agent.model, agent.revision, self._home)

    def problems(self, spec: str) -> str:
        """The digest of a set of problems.

        Raises:
            DataError: unknown, or a file that cannot be used.
        """
        return _digest(spec, data_folder())

    def benchmark(self, name: str) -> str:
        """The digest of a benchmark's problems.

        Raises:
            DataError: no file, or one that cannot be used.
        """
        return _benchmark_digest(name, data_folder())

    def check_problems(self, problems: ProblemsConfig, per_step: int) -> None:
        """Refuse sets that cannot be used together.

        Args:
            problems: to train on and held out.
            per_step: problems of a step; 0 if nothing is trained.
        Raises:
            DataError: an unusable file, an overlap, fewer problems than a step takes.
        """
        _check_problem_sets(problems.train, problems.held_out, data_folder())
        if per_step:
            check_enough(problems.train, len(load_problems(problems.train)), per_step)


class ExpectedInputs(Inputs):
    """For a plan: what is not here is noted, and stands for itself; what is wrong is refused."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.missing: dict[str, str] = {}
        """What is not here -> why, or how to get it. While there is any, keys are not final."""
        self._models: dict[tuple[str, str | None], str] = {}

    def model(self, agent: AgentConfig) -> str:
        asked = agent.model, agent.revision
        if asked not in self._models:  # the hub may take its time to refuse
            self._models[asked] = self._find_model(agent)
        return self._models[asked]

    def _find_model(self, agent: AgentConfig) -> str:
        try:
            return super().model(agent)
        except DataError as error:
            if not is_on_hub(agent.model):
                raise
            return self._note(agent.model, str(error))

    def problems(self, spec: str) -> str:
        return self._note_data(spec) if self._is_missing(spec) else super().problems(spec)

    def benchmark(self, name: str) -> str:
        spec = f"data:{benchmark(name).file}"
        return self._note_data(spec) if self._is_missing(spec) else super().benchmark(name)

    def check_problems(self, problems: ProblemsConfig, per_step: int) -> None:
        if not any(self._is_missing(spec) for spec in (problems.train, problems.held_out)):
            super().check_problems(problems, per_step)

    def _is_missing(self, spec: str) -> bool:
        file = spec.removeprefix("data:")
        fetched = any(each.file == file for each in SETS.values())
        return fetched and file != spec and not (data_folder() / file).is_file()

    def _note_data(self, spec: str) -> str:
        return self._note(spec, "hacpo data fetch all")

    def _note(self, what: str, remedy: str) -> str:
        self.missing[what] = remedy
        return f"missing:{what}"


@lru_cache(maxsize=32)
def _check_problem_sets(train: str, held_out: str, folder: Path) -> None:
    """Cached, as all here, since a grid asks for each cell; `folder` is where `data:` is."""
    check_disjoint(load_problems(train), load_problems(held_out))


@lru_cache(maxsize=32)
def _digest(spec: str, folder: Path) -> str:
    return problems_digest(load_problems(spec))


@lru_cache(maxsize=32)
def _benchmark_digest(name: str, folder: Path) -> str:
    return problems_digest(read_set(benchmark(name), folder))
