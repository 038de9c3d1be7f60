"""Reading configuration files: `extends`, dotted overrides, errors that name file and key.

A path in a file is relative to that file, in an override or a mapping to the working directory.
"""

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from hacpo.config import BaseConfig, GridConfig, RunConfig
from hacpo.errors import ConfigError
from hacpo.places import is_path
from hacpo.task_settings import NAMED_PROBLEMS

ConfigT = TypeVar("ConfigT", bound=BaseConfig)


class _UniqueKeyLoader(yaml.SafeLoader):
    """A duplicate key (two agents of one id) is an error, not a silent overwrite."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":  # `<<`: the loader's own business
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | bool):
                line = key_node.start_mark.line + 1
                raise ConfigError(f"line {line}: a key must be plain text, not {key!r}")
            if key in seen:
                line = key_node.start_mark.line + 1
                raise ConfigError(f"line {line}: duplicate key {key!r}; each may stand once")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def load_run(
    source: str | Path | Mapping[str, Any], overrides: Iterable[str] = (), agent: str | None = None
) -> RunConfig:
    """One training from a file or mapping.

    Args:
        source: YAML file or the same as a mapping. A grid's file serves too: its grid section is
            left aside.
        overrides: `dotted.key=value`, the value read as YAML.
        agent: train this agent alone.
    Raises:
        ConfigError: one line with the file, the key and the remedy.
    """
    data, where = _read(source)
    data.pop("grid", None)
    _apply(data, overrides)
    if agent is not None:
        agents = data.get("agents") or {}
        if not isinstance(agents, dict):
            raise ConfigError(f"{where}: agents must map ids to models (found {agents!r})")
        if agent not in agents:
            raise ConfigError(f"{where}: unknown agent {agent!r}; known: {', '.join(agents)}")
        data["agents"] = {agent: agents[agent]}
    return validate(RunConfig, data, where)


def load_grid(source: str | Path | Mapping[str, Any], overrides: Iterable[str] = ()) -> GridConfig:
    """A table of trainings from a file or mapping; arguments and errors as in `load_run`.

    A method and seed of a run's file that it extends give way to the grid's own lists.
    """
    data, where = _read(source)
    data.pop("method", None)
    data.pop("seed", None)
    _apply(data, overrides)
    if "grid" not in data:
        raise ConfigError(f"{where}: has no grid section; run a single training with `hacpo run`")
    return validate(GridConfig, data, where)


def validate(model: type[ConfigT], data: Mapping[str, Any], where: str) -> ConfigT:
    """Build a config, turning pydantic's report into one line with the nearest valid name."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_first_problem(model, error)}") from None


def set_dotted(data: dict[str, Any], dotted: str, value: Any) -> None:
    """Set `a.b.c` in nested mappings, making those that are missing."""
    *path, last = _parts(data, dotted)
    for part in path:
        below = data.get(part)
        if below is None:
            below = data[part] = {}
        if not isinstance(below, dict):
            raise ConfigError(f"override {dotted!r}: {part!r} is a value, not a section")
        data = below
    data[last] = value


def _parts(data: Any, dotted: str) -> list[str]:
    """The keys of a dotted name; one that is there may hold dots itself, such as `qwen2.5`."""
    parts = []
    while dotted:
        known = [k for k in data if f"{dotted}.".startswith(f"{k}.")] if _is_section(data) else []
        part = max(known, key=len, default=dotted.partition(".")[0])
        parts.append(part)
        data = data.get(part) if _is_section(data) else None
        dotted = dotted[len(part) + 1 :]
    return parts


def _is_section(data: Any) -> bool:
    return isinstance(data, dict)


def _apply(data: dict[str, Any], overrides: Iterable[str]) -> None:
    for override in overrides:
        dotted, sign, text = override.partition("=")
        if not sign or not dotted:
            raise ConfigError(f"override {override!r} is not key=value")
        try:
            value = yaml.load(text, _UniqueKeyLoader)
        except yaml.YAMLError:
            raise ConfigError(f"override {override!r}: the value is not YAML") from None
        set_dotted(data, dotted, value)


def _read(source: str | Path | Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    if isinstance(source, Mapping):
        return _deep_copy(source), "config"
    path = Path(source)
    return _read_file(path, ()), str(path)


def _read_file(path: Path, below: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in below:
        raise ConfigError(f"{path}: extends itself; break the circle")
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeyLoader)
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; configs of this project lie in configs/"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: malformed YAML: {' '.join(str(error).split())}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must hold a mapping of keys")
    extends = data.pop("extends", [])
    parents = [extends] if isinstance(extends, str) else extends
    if not isinstance(parents, list) or not all(isinstance(parent, str) for parent in parents):
        raise ConfigError(f"{path}: extends must be a file or a list of files (found {extends!r})")
    _root_paths(data, path.parent.absolute())
    merged: dict[str, Any] = {}
    for parent in parents:
        _merge(merged, _read_file(path.parent / parent, (*below, path.resolve())))
    _merge(merged, data)
    return merged


def _root_paths(data: dict[str, Any], folder: Path) -> None:
    """Make what a file says about files independent of where it is read from."""

    def section(name: str) -> dict[str, Any]:
        found = data.get(name)
        return found if isinstance(found, dict) else {}

    def rooted(text: str) -> str:
        return str(Path(os.path.normpath(folder / Path(text).expanduser())))

    problems, verifier = section("problems"), section("verifier")
    for key, spec in problems.items():
        if isinstance(spec, str) and spec and not spec.startswith(NAMED_PROBLEMS):
            problems[key] = rooted(spec)
    for agent in section("agents").values():
        model = agent.get("model") if isinstance(agent, dict) else None
        if not isinstance(model, str) or model.startswith(("embedded:", "pypi:")):
            continue
        if is_path(model, folder):
            agent["model"] = rooted(model)
    if isinstance(verifier.get("folder"), str):
        verifier["folder"] = rooted(verifier["folder"])
    elif verifier.get("reward") is not None:
        verifier["folder"] = str(folder)


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Mappings merge, everything else (lists too) is replaced."""
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = _deep_copy(value)


def _deep_copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _deep_copy(item) for key, item in value.items()}
    return value


def _first_problem(model: type[BaseModel], error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    # A mistyped key is also a missing one; what was written says more than what was not.
    first = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
    location = [str(part) for part in first["loc"] if part != "[key]"]
    key = ".".join(location)
    if first["type"] == "extra_forbidden":
        names = _valid_names(model, location[:-1])
        near = difflib.get_close_matches(location[-1], names, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(names)}"
        return f"unknown key {key!r}; {hint}"
    if first["type"] == "missing":
        return f"{key} is missing"
    message = first["msg"].removeprefix("Value error, ")
    found = "" if isinstance(first["input"], dict) or not key else f" (found {first['input']!r})"
    return f"{key}: {message}{found}" if key else f"{message}{found}"


def _valid_names(model: type[BaseModel], location: list[str]) -> list[str]:
    """Field names of the section at `location`."""
    current: Any = model
    for part in location:
        fields = current.model_fields if _is_model(current) else {}
        annotation = fields[part].annotation if part in fields else current
        arguments = [a for a in getattr(annotation, "__args__", ()) if _is_model(a)]
        current = annotation if _is_model(annotation) else (arguments or [current])[0]
    return list(current.model_fields) if _is_model(current) else []


def _is_model(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)
