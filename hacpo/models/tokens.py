"""One agent's side of text: rendering prompts, decoding responses, reading other agents' responses.

Self rows keep the sampler's token ids. Cross rows are decoded and re-encoded: the response alone,
no special tokens added, then the learner's own end token if the source ended by itself.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from hacpo.errors import DataError
from hacpo.settings import AgentConfig
from hacpo.types import Problem, Rollout, View

UNDECODABLE = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class AgentTokens:
    """Tokenizer, template and end tokens of one agent.

    Build it with `load_tokens`, which refuses what cannot be trained.
    """

    agent: str
    tokenizer: Any
    prompt: str
    end_ids: tuple[int, ...]
    """Every token that ends a response; the first is the one appended to cross rows."""
    pad_id: int
    special_ids: frozenset[int] = field(repr=False)

    def render(self, problem: Problem) -> list[int]:
        """The prompt's token ids, through the chat template if the tokenizer has one.

        Raises:
            DataError: a text that the tokenizer or its template refuses.
        """
        text = self.prompt.replace("{problem}", problem.problem)
        try:
            if self.tokenizer.chat_template is None:
                return list(self.tokenizer(text)["input_ids"])
            encoded = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=True
            )
            return list(encoded["input_ids"])
        except Exception as error:  # tokenizers raises plain Exception, templates their own kinds
            reason = " ".join(str(error).split())[:200]
            raise DataError(
                f"agent {self.agent!r}: cannot read problem {problem.id!r}: {reason}; "
                "change its prompt, or use problems that this tokenizer knows"
            ) from error

    def decode(self, token_ids: list[int]) -> str:
        """A response's text without its end token; other special tokens stay visible."""
        body = token_ids[:-1] if token_ids and token_ids[-1] in self.end_ids else token_ids
        return str(
            self.tokenizer.decode(
                body, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def encode(self, text: str) -> list[int]:
        """A response's ids, nothing added; [] where this tokenizer cannot spell the text."""
        try:
            return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        except Exception:  # tokenizers raises plain Exception; the row is counted as unreadable
            return []

    def self_view(self, rollout: Rollout, prompt_ids: list[int]) -> View:
        return View(
            rollout_id=rollout.id,
            problem_id=rollout.problem_id,
            source=rollout.source,
            prompt_ids=prompt_ids,
            response_ids=rollout.token_ids,
        )

    def cross_view(
        self, rollout: Rollout, prompt_ids: list[int], *, unshared: str, max_tokens: int
    ) -> View:
        """Another agent's response in this learner's tokens.

        Args:
            rollout: by the source.
            prompt_ids: this learner's own rendering of the problem.
            unshared: the source's verdict (`unshared_reason`), empty if it may be shared.
            max_tokens: this learner's response limit; a longer row has no loss term (`overflow`).
        """
        excluded = unshared
        response: list[int] = []
        if not excluded:
            response = self.encode(rollout.text)
            if rollout.finish_reason == "stop":
                response.append(self.end_ids[0])
            if not response or response[0] == self.end_ids[0]:
                excluded = "unreadable"
            elif any(token in self.special_ids for token in response[:-1]):
                excluded = "special_token"
            elif len(response) > max_tokens:
                excluded = "overflow"
        return View(
            rollout_id=rollout.id,
            problem_id=rollout.problem_id,
            source=rollout.source,
            prompt_ids=prompt_ids,
            response_ids=[] if excluded else response,
            excluded=excluded,
        )

    def unshared_reason(self, rollout: Rollout) -> str:
        """Why this agent's own rollout is not shared: special_token, undecodable, empty, or ""."""
        body = rollout.token_ids
        if body and body[-1] in self.end_ids:
            body = body[:-1]
        if any(token in self.special_ids for token in body):
            return "special_token"
        if UNDECODABLE in rollout.text:
            return "undecodable"
        return "" if rollout.text else "empty"

    def reads_unchanged(self, text: str) -> bool:
        """Whether encoding and decoding gives the identical text."""
        return self.decode(self.encode(text)) == text


def load_tokens(agent: str, config: AgentConfig, model: str | Path) -> AgentTokens:
    """Read an agent's tokenizer and configs; no weights.

    Raises:
        DataError: no tokenizer, no end token: one line with the agent's id.
    """
    name = str(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, revision=config.revision or "main")
        model_config = AutoConfig.from_pretrained(name, revision=config.revision or "main")
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"agent {agent!r}: {name} cannot be loaded: {reason}") from error
    try:
        generation = GenerationConfig.from_pretrained(name, revision=config.revision or "main")
    except OSError:
        generation = GenerationConfig()
    end_ids = _end_ids(tokenizer, model_config, generation)
    if not end_ids:
        raise DataError(
            f"agent {agent!r}: {name} names no end token (eos_token); without one no response "
            "ends: set eos_token in its tokenizer_config.json"
        )
    pad_id = tokenizer.pad_token_id
    return AgentTokens(
        agent=agent,
        tokenizer=tokenizer,
        prompt=config.prompt,
        end_ids=end_ids,
        pad_id=end_ids[0] if pad_id is None else int(pad_id),
        special_ids=frozenset(tokenizer.all_special_ids) | frozenset(end_ids),
    )


def _end_ids(tokenizer: Any, *configs: Any) -> tuple[int, ...]:
    """The tokenizer's own end token first (its chat template uses that one), then the others."""
    found: list[int] = []
    for candidate in (tokenizer.eos_token_id, *(c.eos_token_id for c in configs)):
        ids = candidate if isinstance(candidate, list) else [candidate]
        found += [int(i) for i in ids if i is not None and int(i) not in found]
    return tuple(found)
