"""What an error of an attempt is called, and whether another attempt may help."""

import pytest
import torch

from hacpo.errors import (
    ConfigError,
    DataError,
    EngineError,
    HacpoError,
    NotFiniteError,
    RegistryUnavailableError,
    ServiceError,
    StorageError,
    VerifierError,
)
from hacpo.failures import classify


@pytest.mark.parametrize(
    ("error", "kind", "retry"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "oom", False),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "oom", False),
        (MemoryError(), "oom", False),
        (NotFiniteError("no finite gradient"), "not_finite", False),
        (VerifierError("its processes die"), "verifier", True),
        (EngineError("its vllm engine died of SIGKILL"), "infrastructure", True),
        (StorageError("disk full"), "infrastructure", True),
        (RegistryUnavailableError("connection refused"), "infrastructure", True),
        (ServiceError("MLflow"), "infrastructure", True),
        (ConnectionResetError("reset"), "infrastructure", True),
        (ConfigError("x"), "config", False),
        (DataError("x"), "data", False),
        (HacpoError("x"), "config", False),
        (KeyError("x"), "unexpected", True),
    ],
)
def test_kinds(error: Exception, kind: str, retry: bool) -> None:
    failure = classify(error)
    assert (failure.kind, failure.retry) == (kind, retry)
    assert failure.message
    assert "\n" not in failure.message


def test_a_bug_keeps_its_name_and_a_lack_of_memory_says_what_to_do() -> None:
    assert classify(KeyError("x")).message == "KeyError: 'x'"
    assert classify(MemoryError("out of memory")).message.endswith("lower update.micro_tokens")
