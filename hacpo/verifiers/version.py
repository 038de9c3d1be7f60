"""Which verifier this is: what of its own code and of its libraries decides a grade."""

import hashlib
import importlib.metadata
from functools import lru_cache
from pathlib import Path

_SOURCES = ("answer_text.py", "boxed.py", "equivalence.py", "math_answer.py")
_LIBRARIES = ("math-verify", "latex2sympy2_extended", "antlr4-python3-runtime", "sympy")


@lru_cache(maxsize=1)
def math_verifier_version() -> dict[str, str]:
    """Of type math: `verifier` (a hash of its sources) and each library's version."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((Path(__file__).parent / name).read_bytes())
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"verifier": f"math {digest.hexdigest()[:12]}", **versions}
