"""Collaborative reinforcement learning of different language models (HACPO, arXiv 2603.02604).

import hacpo
result = hacpo.train("configs/embedded/pair.yaml", overrides=["steps=5"])
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "train"]

if TYPE_CHECKING:
    from hacpo.api import train


def __getattr__(name: str) -> Any:
    """Import torch only when it is needed: the status commands load this package too."""
    if name == "train":
        from hacpo.api import train

        return train
    raise AttributeError(f"module 'hacpo' has no attribute {name!r}")
