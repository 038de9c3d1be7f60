"""The project's engine as a model of lm-eval. Importing this imports lm_eval: about a second."""

import logging
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import lm_eval.api.task as lm_eval_task
from lm_eval.api.model import LM

from hacpo.evals.scoring import GradedResponse
from hacpo.types import FinishReason, Problem

if TYPE_CHECKING:
    from hacpo.evals.harness import Generate, Grade

# lm-eval warns about every custom data set and draws a bar on stderr for every task.
logging.getLogger("lm_eval").setLevel(logging.ERROR)
lm_eval_task.tqdm = partial(lm_eval_task.tqdm, disable=True)


class EngineLM(LM):  # type: ignore[misc]  # lm_eval has no type information
    """Samples with our engine and grades in bulk; holds no weights and no generation defaults."""

    def __init__(
        self,
        problems: list[Problem],
        prompts: list[list[int]],
        generate: "Generate",
        grade: "Grade",
        seed: int,
    ) -> None:
        super().__init__()
        self._problems = problems
        self._prompts = prompts
        self._generate = generate
        self._grade = grade
        self._seed = seed

    def generate_until(self, requests: list[Any]) -> list[str]:
        """One engine call for each task, then one grading call for everything.

        lm-eval repeats a request k times; those k are one prompt with num_samples=k.
        """
        places: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for place, request in enumerate(requests):
            places[request.task_name][request.doc_id].append(place)

        sampled: dict[int, tuple[Problem, str, FinishReason]] = {}
        for by_document in places.values():
            first = requests[next(iter(by_document.values()))[0]]
            (repeats,) = {len(repeated) for repeated in by_document.values()}
            options = first.args[1]
            samples = self._generate(
                [self._prompts[document] for document in by_document],
                repeats,
                temperature=options["temperature"],
                max_tokens=options["max_gen_toks"],
                seed=self._seed,
            )
            for (document, repeated), row in zip(by_document.items(), samples, strict=True):
                for place, sample in zip(repeated, row, strict=True):
                    problem = self._problems[document]
                    sampled[place] = (problem, sample.text, sample.finish_reason)

        responses = [sampled[place] for place in range(len(requests))]
        grades = self._grade(responses)
        return [
            GradedResponse(text, reward, outcome)
            for (_, text, _), (reward, outcome) in zip(responses, grades, strict=True)
        ]

    def loglikelihood(self, requests: list[Any]) -> NoReturn:
        raise NotImplementedError("held-out tasks only generate")

    def loglikelihood_rolling(self, requests: list[Any]) -> NoReturn:
        raise NotImplementedError("held-out tasks only generate")
