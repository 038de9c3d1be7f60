"""What this machine has, and what tells it from another one."""

import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any

import torch


def available_bytes() -> int:
    """Memory that a new process may take without swapping, with what this one holds."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux: all there is
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return free + resident_bytes()


def gpu_available_bytes(device: torch.device) -> int:
    """Memory of a GPU that others have left, with what this process holds."""
    return int(torch.cuda.mem_get_info(device)[0]) + int(torch.cuda.memory_reserved(device))


def resident_bytes() -> int:
    """What this process holds now."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return peak_bytes()
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """The most that this process has held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def machine_facts(device: torch.device) -> dict[str, Any]:
    """What times depend on; a calibration counts for the machine that made it."""
    facts: dict[str, Any] = {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "torch": torch.__version__,
    }
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "")
