"""The import rules of the design: leaves do not know each other, heavy packages have one owner."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOUNDATION = {"types", "errors", "extras", "settings", "task_settings", "config", "locks"}
# part of hacpo -> parts that it may import beside FOUNDATION and itself
MAY_IMPORT: dict[str, set[str]] = {
    "types": set(),
    "errors": set(),
    "extras": set(),
    "settings": set(),
    "task_settings": set(),
    "config": set(),
    "locks": set(),
    "places": set(),
    "slots": set(),
    "presets": {"places"},
    "algorithm": set(),
    "models": {"places", "problems"},  # embedded agents are pre-trained on the embedded problems
    "engines": set(),
    "problems": {"places"},
    "verifiers": {"problems"},  # a task of reasoning-gym is made again to be scored
    "registry": set(),
    "ledger": set(),
    "tracking": set(),
    "benchmarks": {"ledger", "places", "problems", "verifiers"},
    "evals": {"benchmarks", "ledger", "places", "verifiers"},
    "checkpoints": {"ledger"},
    "cells": {"inputs", "presets"},
    "inputs": {"benchmarks", "models", "places", "problems"},
    "preflight": {"agents", "models", "tracking", "verifiers"},
    "agents": {"checkpoints", "engines", "models", "places"},
    "run": {
        "agents",
        "checkpoints",
        "ledger",
        "models",
        "places",
        "problems",
        "tracking",
        "verifiers",
    },
    "subjects": {"checkpoints", "ledger", "models", "places"},
    "benchmarking": {
        "agents",
        "benchmarks",
        "engines",
        "evals",
        "ledger",
        "models",
        "places",
        "problems",
        "run",
        "subjects",
        "verifiers",
    },
    "benchmark_process": {"benchmarking", "ledger", "subjects"},
    "phases": {
        "agents",
        "algorithm",
        "benchmarks",
        "checkpoints",
        "engines",
        "evals",
        "ledger",
        "models",
        "places",
        "problems",
        "run",
    },
    "loop": {"phases", "run"},
    "plan": {
        "agents",
        "algorithm",
        "benchmarks",
        "cells",
        "ledger",
        "loop",
        "models",
        "phases",
        "places",
        "preflight",
        "presets",
        "problems",
        "run",
    },
    "deliver": {"ledger", "places", "tracking"},
    "failures": set(),
    "exchange_file": {"ledger"},
    "lease": {"ledger", "registry"},
    "recorder": {"cells", "checkpoints", "lease", "places", "registry"},
    "notify": {"registry"},
    "report": {"ledger", "places", "registry", "tracking"},
    "doctor": {"models", "places", "presets", "problems", "registry", "slots", "tracking"},
}
OWNERS = {
    "vllm": ("hacpo/engines/vllm_worker.py", "hacpo/engines/vllm_load.py"),
    "lm_eval": ("hacpo/evals/",),
    "mlflow": ("hacpo/tracking/",),
    "sqlalchemy": ("hacpo/registry/", "flows/prefect_plugin.py"),
    "alembic": ("hacpo/registry/",),
    "math_verify": ("hacpo/verifiers/",),
    "transformers": ("hacpo/models/", "hacpo/engines/cache.py", "hacpo/engines/attention.py"),
    "reasoning_gym": ("hacpo/problems/gym.py",),
    "prefect": ("flows/",),
}


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def part(path: Path) -> str:
    relative = path.relative_to(ROOT / "hacpo")
    return relative.parts[0].removesuffix(".py")


@pytest.mark.parametrize("name", sorted(MAY_IMPORT))
def test_a_part_imports_only_what_lies_below_it(name: str) -> None:
    allowed = MAY_IMPORT[name] | FOUNDATION | {name}
    for path in sources("hacpo"):
        if part(path) != name:
            continue
        used = {i.split(".")[1] for i in imports(path) if i.startswith("hacpo.")} - {"__version__"}
        assert used <= allowed, f"{path.relative_to(ROOT)} imports {sorted(used - allowed)}"


def test_every_part_of_the_library_has_a_rule() -> None:
    top = {"__init__", "api", "cli", "work"}
    assert {part(path) for path in sources("hacpo")} - set(MAY_IMPORT) <= top


@pytest.mark.parametrize("package", sorted(OWNERS))
def test_a_heavy_package_has_one_owner(package: str) -> None:
    for path in sources("hacpo") + sources("flows"):
        relative = path.relative_to(ROOT).as_posix()
        used = {i.split(".")[0] for i in imports(path)}
        if package in used:
            assert relative.startswith(OWNERS[package]), f"{relative} imports {package}"


def test_the_algorithm_needs_torch_only() -> None:
    standard = set(sys.stdlib_module_names)
    for path in sources("hacpo/algorithm"):
        used = {i.split(".")[0] for i in imports(path)} - standard
        assert used <= {"torch", "hacpo"}, f"{path.name} imports {used}"


def test_nothing_in_the_library_imports_the_flows() -> None:
    for path in sources("hacpo"):
        assert not any(i.split(".")[0] == "flows" for i in imports(path)), path


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("hacpo", "torch transformers prefect mlflow lm_eval sqlalchemy pyarrow"),
        ("hacpo.config", "torch transformers prefect mlflow lm_eval sqlalchemy pyarrow"),
        ("hacpo.cells", "torch transformers prefect mlflow lm_eval sqlalchemy pyarrow"),
        ("hacpo.doctor.work", "torch transformers prefect mlflow lm_eval sqlalchemy pyarrow"),
        ("flows.slots", "torch transformers prefect mlflow lm_eval sqlalchemy pyarrow asyncio"),
        ("hacpo.cli", "torch transformers prefect mlflow lm_eval pyarrow"),
        ("hacpo.report", "torch transformers prefect mlflow lm_eval pyarrow"),
        ("hacpo.algorithm", "transformers prefect mlflow lm_eval sqlalchemy pyarrow"),
        ("hacpo.work", "prefect mlflow lm_eval vllm"),
        ("flows.grid", "torch transformers mlflow lm_eval"),
    ],
)
def test_importing_stays_light(module: str, absent: str) -> None:
    code = f"import sys, {module}; print(*sorted(set(sys.modules) & set({absent.split()!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == ""
