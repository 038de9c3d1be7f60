"""One agent's side of text: rendering prompts, decoding responses, reading other agents' responses.

Self rows keep the sampler's token ids. Cross rows are decoded and re-encoded: the response alone,
no special tokens added, then the learner's own end token if the source ended by itself.
"""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer, GenerationConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from hacpo.errors import DataError
from hacpo.settings import AgentConfig
from hacpo.types import Problem, Rollout, View

UNDECODABLE = "\N{REPLACEMENT CHARACTER}"
_NO_TOKENIZER = "has no tokenizer; copy tokenizer.json and tokenizer_config.json there"
_OTHER_HEADS = (
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
)


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
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    """For the chat template."""

    def render(self, problem: Problem) -> list[int]:
        """The prompt's token ids, through the chat template if the tokenizer has one.

        Raises:
            DataError: a text that the tokenizer or its template refuses.
        """
        ids = self._render(problem)
        if not ids:
            raise DataError(
                f"agent {self.agent!r}: nothing of problem {problem.id!r} is in its vocabulary; "
                "use problems that this tokenizer knows"
            )
        return ids

    def _render(self, problem: Problem) -> list[int]:
        text = self.prompt.replace("{problem}", problem.problem)
        try:
            if self.tokenizer.chat_template is None:
                return list(self.tokenizer(text)["input_ids"])
            encoded = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": text}],
                add_generation_prompt=True,
                return_dict=True,
                **self.template_kwargs,
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
        DataError: no tokenizer, no end token, no causal language model, a vocabulary that its
            embedding does not hold, an end token of the config that is not one token: one line
            with the agent's id.
    """
    name = str(model)
    shared: dict[str, Any] = {
        "revision": config.revision or "main",
        "trust_remote_code": config.trust_remote_code,  # None would ask on the terminal
    }
    try:
        model_config = AutoConfig.from_pretrained(name, **shared)
        _check_kind(model_config, trusted=config.trust_remote_code)
        tokenizer = AutoTokenizer.from_pretrained(name, **shared)
        _check_vocabulary(tokenizer, model_config)
        if config.chat_template_kwargs and tokenizer.chat_template is None:
            raise DataError("has no chat template; remove chat_template_kwargs of this agent")
        end_ids = tuple(
            dict.fromkeys(
                [
                    *(_single_token(tokenizer, text) for text in config.end_tokens),
                    *_end_ids(tokenizer, model_config, _generation_config(name, shared)),
                ]
            )
        )
    except Exception as error:  # tokenizers raises plain Exception, configs their own kinds
        raise DataError(f"agent {agent!r}: {name} {_reason(error)}") from error
    if not end_ids:
        raise DataError(
            f"agent {agent!r}: {name} names no end token (eos_token); without one no response "
            "ends: set end_tokens for this agent, or eos_token in its tokenizer_config.json"
        )
    padding = (tokenizer.pad_token_id, tokenizer.eos_token_id, end_ids[0])
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return AgentTokens(
        agent=agent,
        tokenizer=tokenizer,
        prompt=config.prompt,
        end_ids=end_ids,
        pad_id=next(int(i) for i in padding if i is not None),
        special_ids=frozenset(tokenizer.all_special_ids) | frozenset(end_ids) | special,
        template_kwargs=dict(config.chat_template_kwargs),
    )


def tokenizer_hash(tokenizer: Any) -> str:
    """The same for tokenizers that read and write every text alike, chat template included."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        facts: Any = sorted(tokenizer.get_vocab().items())
    else:
        facts = json.loads(backend.to_str())
        for state in ("truncation", "padding"):  # of a call, not of the tokenizer
            facts.pop(state, None)
    text = json.dumps([facts, tokenizer.chat_template, tokenizer.special_tokens_map], default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def check_tokenizer(agent: str, tokens: AgentTokens, folder: Path) -> None:
    """Refuse a checkpoint whose tokenizer is not the one that it was trained with.

    Raises:
        DataError: it has none, or another one.
    """
    try:
        saved = AutoTokenizer.from_pretrained(str(folder))
    except Exception as error:  # tokenizers raises plain Exception
        raise DataError(f"agent {agent!r}: {folder} {_reason(error)}") from error
    if tokenizer_hash(saved) != tokenizer_hash(tokens.tokenizer):
        raise DataError(
            f"agent {agent!r}: the tokenizer in {folder} is not that of the model that was "
            "trained; copy that one's tokenizer files there, or evaluate the folder by itself"
        )


def _check_kind(model_config: Any, *, trusted: bool) -> None:
    """Refuse what would get a random head, or looks at the tokens to come."""
    kind = model_config.model_type
    own_code = "AutoModelForCausalLM" in (getattr(model_config, "auto_map", None) or {})
    heads = model_config.architectures or []
    if (
        (kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not (own_code and trusted))
        or model_config.is_encoder_decoder
        or (heads and all(head.endswith(_OTHER_HEADS) for head in heads))
    ):
        found = f"{kind} ({heads[0]})" if heads else kind
        raise DataError(f"is no causal language model but {found}; choose one that writes text")


def _check_vocabulary(tokenizer: Any, model_config: Any) -> None:
    largest = max(tokenizer.get_vocab().values(), default=-1)
    rows = model_config.get_text_config().vocab_size
    if largest < 0:
        raise DataError(_NO_TOKENIZER)
    if largest >= rows:
        raise DataError(
            f"has a tokenizer with ids up to {largest} but an embedding of {rows} rows; "
            "they do not belong together"
        )


def _single_token(tokenizer: Any, text: str) -> int:
    """The id of a token given as text: as it is spelled in the vocabulary, or what it encodes."""
    found = tokenizer.get_vocab().get(text)
    ids = [found] if found is not None else tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) != 1 or (found is None and tokenizer.decode(ids) != text):
        raise DataError(
            f"has no single token for end_tokens {text!r} (it reads {len(ids)}); "
            "give a text that is one token of its vocabulary"
        )
    return int(ids[0])


def _generation_config(name: str, shared: dict[str, Any]) -> GenerationConfig:
    try:
        return GenerationConfig.from_pretrained(name, revision=shared["revision"])
    except OSError:  # many models have none
        return GenerationConfig()


def _reason(error: Exception) -> str:
    if isinstance(error, DataError):
        return str(error)
    text = " ".join(str(error).split())
    if "trust_remote_code" in text:
        return "comes with code of its own; set trust_remote_code: true once you have read it"
    if "backend tokenizer" in text:
        return _NO_TOKENIZER
    return f"cannot be loaded: {text[:200]}"


def _end_ids(tokenizer: Any, *configs: Any) -> list[int]:
    """The tokenizer's own end token first (its chat template uses that one), then the others."""
    found: list[int] = []
    for candidate in (tokenizer.eos_token_id, *(c.eos_token_id for c in configs)):
        ids = candidate if isinstance(candidate, list) else [candidate]
        found += [int(i) for i in ids if i is not None and int(i) not in found]
    return found
