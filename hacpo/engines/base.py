"""What every sampling engine offers: prompts in, samples out, always with the newest weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from hacpo.types import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One response to one prompt."""

    token_ids: list[int]
    """The end token included if the model ended by itself."""
    logprobs: list[float]
    """Per token, at the sampling temperature (temperature 1 for greedy)."""
    text: str
    """Decoded without the end token."""
    finish_reason: FinishReason


class Engine(Protocol):
    """Samples responses of one agent."""

    reads_policy: ClassVar[bool]
    """Samples with the trainer's own weights in memory: nothing is to be loaded."""

    def generate(
        self,
        prompts: list[list[int]],
        num_samples: int,
        *,
        temperature: float,
        max_tokens: int,
        seed: int,
    ) -> list[list[Sample]]:
        """`num_samples` responses for each prompt, in order.

        Args:
            prompts: token ids, special tokens included.
            num_samples: independent samples of each prompt.
            temperature: 0 is greedy; top-p and top-k are always off.
            max_tokens: a response is cut after that many tokens (`length`).
            seed: equal arguments and weights give equal samples.
        """
        ...

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Sample with these weights (names and shapes of the trainer's model) from now on.

        What was cached under others is forgotten.
        """
        ...

    def sleep(self) -> None:
        """Give device memory back until the next call of `load_weights` (which wakes it)."""
        ...

    def close(self) -> None:
        """End what the engine has started; a second call does nothing."""
        ...
