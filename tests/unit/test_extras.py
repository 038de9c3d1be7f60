"""What a config needs of a machine is asked for in one line."""

from pathlib import Path

import pytest

from hacpo.errors import ConfigError
from hacpo.extras import require, require_compiler


def test_a_package_that_is_absent_comes_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require("pytest", "a test")
    monkeypatch.setattr("hacpo.extras.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"lora needs the package peft: pip install 'hacpo\[lora"):
        require("peft", "lora")


def test_the_compiler_is_gpp_or_what_cxx_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ConfigError, match=r"needs a C\+\+ compiler: install g\+\+"):
        require_compiler("vllm.compile_on_cpu")
    compiler = tmp_path / "my-c++"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / name))
    with pytest.raises(ConfigError, match=r"needs .*Python\.h: install python3-dev"):
        require_compiler("vllm.compile_on_cpu")
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "Python.h").touch()
    require_compiler("vllm.compile_on_cpu")
