"""Why an attempt at a cell failed, as one of a few kinds, and whether another may fare better.

oom             out of memory: lower update.micro_tokens or take a larger device
not_finite      gradients that are not finite
verifier        the verifier's processes cannot work
infrastructure  disk, registry, tracking server, a killed engine
config, data    what the config says, or what it names, cannot be used
unexpected      anything else; a bug, most likely
"""

from typing import NamedTuple

from hacpo.errors import (
    ConfigError,
    DataError,
    EngineError,
    HacpoError,
    NotFiniteError,
    RegistryError,
    ServiceError,
    StorageError,
    VerifierError,
)

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory")
_KINDS: tuple[tuple[type[Exception], str, bool], ...] = (
    (MemoryError, "oom", False),
    (NotFiniteError, "not_finite", False),
    (VerifierError, "verifier", True),
    (EngineError, "infrastructure", True),
    (StorageError, "infrastructure", True),
    (RegistryError, "infrastructure", True),
    (ServiceError, "infrastructure", True),
    (ConfigError, "config", False),
    (DataError, "data", False),
    (OSError, "infrastructure", True),
    (HacpoError, "config", False),
)


class Failure(NamedTuple):
    """What the registry keeps of an error."""

    kind: str
    message: str
    retry: bool


def classify(error: Exception) -> Failure:
    """The kind of a failure, one line for people, and whether to try again."""
    message = " ".join(str(error).split())[:500] or type(error).__name__
    if any(symptom in message.lower() for symptom in _OUT_OF_MEMORY):
        return Failure("oom", f"{message}; lower update.micro_tokens", retry=False)
    for known, kind, retry in _KINDS:
        if isinstance(error, known):
            return Failure(kind, message, retry)
    return Failure("unexpected", f"{type(error).__name__}: {message}", retry=True)
