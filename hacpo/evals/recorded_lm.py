"""The project's engine as a model of lm-eval that keeps every finished problem in a file."""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from hacpo.evals.engine_lm import EngineLM
from hacpo.evals.harness import Generate, Grade
from hacpo.evals.records import Answer, Records
from hacpo.evals.scoring import GradedResponse
from hacpo.types import UNGRADED, Problem


class RecordedLM(EngineLM):
    """Samples and grades in chunks of problems; those that the records hold are not asked again.

    Args:
        problems: of one benchmark.
        prompts: their token ids.
        generate: the engine.
        grade: the verifier.
        seed: problem index -> seed of the chunk that begins there.
        records: of this benchmark.
        chunk_rows: responses that are sampled, graded and recorded at once.
        progress: gets (finished problems, all problems) after each chunk.
    """

    def __init__(
        self,
        problems: list[Problem],
        prompts: list[list[int]],
        generate: Generate,
        grade: Grade,
        seed: Callable[[int], int],
        records: Records,
        chunk_rows: int,
        progress: Callable[[int, int], None],
    ) -> None:
        super().__init__(problems, prompts, generate, grade, seed=0)
        self._chunk_seed = seed
        self._records = records
        self._chunk_rows = chunk_rows
        self._progress = progress

    def generate_until(self, requests: list[Any]) -> list[str]:
        """Every request's response, from the records where it stands there."""
        places: dict[int, list[int]] = defaultdict(list)
        for place, request in enumerate(requests):
            places[request.doc_id].append(place)
        (repeats,) = {len(repeated) for repeated in places.values()}
        options = requests[0].args[1]
        size = max(1, self._chunk_rows // repeats)
        indices = sorted(places)
        for start in range(0, len(indices), size):  # always the same chunks: the same samples
            chunk = indices[start : start + size]
            missing = [i for i in chunk if self._problems[i].id not in self._records]
            if missing:
                self._sample(missing, repeats, options)
            self._progress(start + len(chunk), len(indices))
        responses: dict[int, str] = {}
        for index, repeated in places.items():
            answers = self._records[self._problems[index].id]
            for place, answer in zip(repeated, answers, strict=True):
                responses[place] = _graded(answer)
        return [responses[place] for place in range(len(requests))]

    def _sample(self, indices: list[int], repeats: int, options: dict[str, Any]) -> None:
        problems = [self._problems[index] for index in indices]
        groups = self._generate(
            [self._prompts[index] for index in indices],
            repeats,
            temperature=options["temperature"],
            max_tokens=options["max_gen_toks"],
            seed=self._chunk_seed(indices[0]),
        )
        rows = [
            (problem, sample.text, sample.finish_reason)
            for problem, group in zip(problems, groups, strict=True)
            for sample in group
        ]
        grades = iter(self._grade(rows))
        finished = []
        for problem, group in zip(problems, groups, strict=True):
            answers = []
            for sample in group:
                reward, outcome = next(grades)
                answers.append(
                    Answer(
                        text=sample.text,
                        finish_reason=sample.finish_reason,
                        tokens=len(sample.token_ids),
                        outcome=outcome,
                        score=None if math.isnan(reward) else reward,
                    )
                )
            finished.append((problem.id, answers))
        self._records.append(finished)


def _graded(answer: Answer) -> GradedResponse:
    reward = UNGRADED if answer.score is None else answer.score
    return GradedResponse(answer.text, reward, answer.outcome)
