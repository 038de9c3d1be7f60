"""vLLM engines for tests, on the CPU."""

import importlib.util
from typing import Any, Literal

import pytest

from hacpo.engines.vllm import VLLMEngine
from hacpo.errors import ConfigError
from hacpo.extras import require_compiler
from hacpo.models.policy import Policy

needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vllm is not installed"
)


def _cannot_compile() -> str:
    try:
        require_compiler("compiling")
    except ConfigError as error:
        return str(error)
    return ""


needs_compiler = pytest.mark.skipif(bool(_cannot_compile()), reason=_cannot_compile())


def engine_of(
    policy: Policy, *, dtype: Literal["float32", "bfloat16"] = "float32", **options: Any
) -> VLLMEngine:
    """An engine without weights yet, for a policy whose model came from a folder."""
    return VLLMEngine(
        agent="a",
        model=policy.model.config._name_or_path,
        end_ids=policy.tokens.end_ids,
        decode=policy.tokens.decode,
        dtype=dtype,
        max_model_tokens=64,
        kv_cache_bytes=32 << 20,
        threads=1,
        **options,
    )
