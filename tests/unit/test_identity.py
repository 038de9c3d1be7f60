"""Which model a name stands for: embedded recipes, local folders, hub ids."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from hacpo.errors import DataError
from hacpo.models import hub
from hacpo.models.embedded import agent_folder
from hacpo.models.identity import model_identity, model_label
from hacpo.models.recipes import recipe_hash
from hacpo.models.resolve import resolve_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder, as far as an identity reads it, written a while ago."""
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors", "README.md"):
        put(folder / name, name)
    return folder


def put(file: Path, text: str) -> None:
    file.write_text(text)
    age = 1_700_000_000 + len(text)
    os.utime(file, (age, age))


def test_an_embedded_agent_is_identified_by_its_recipe(tmp_path: Path) -> None:
    expected = f"embedded:a@{recipe_hash('a')[:12]}"
    assert model_identity("embedded:a", None, tmp_path) == expected
    assert agent_folder("a", tmp_path).name == expected.removeprefix("embedded:").replace("@", "-")
    assert list(tmp_path.iterdir()) == []  # nothing is built for it


def test_a_folder_is_identified_by_what_decides_its_behaviour(tmp_path: Path, folder: Path) -> None:
    home = tmp_path / "home"
    seen = [model_identity(str(folder), None, home)]
    assert seen[0].startswith("local:")
    assert len(seen[0]) == len("local:") + 64
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        put(folder / name, f"changed {name}")
        seen.append(model_identity(str(folder), None, home))
    put(folder / "generation_config.json", "{}")
    seen.append(model_identity(str(folder), None, home))
    assert len(set(seen)) == 5
    put(folder / "README.md", "other words")
    put(folder / "notes.txt", "more words")
    assert model_identity(str(folder), None, home) == seen[-1]
    moved = folder.rename(tmp_path / "moved")
    assert model_identity(str(moved), None, home) == seen[-1]


def test_a_folder_that_has_not_changed_is_not_read_again(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    identity = model_identity(str(folder), None, home)
    read: list[str] = []
    digest = hashlib.file_digest

    def watched(stream: Any, name: str) -> Any:
        read.append(Path(stream.name).name)
        return digest(stream, name)

    monkeypatch.setattr(hashlib, "file_digest", watched)
    assert model_identity(str(folder), None, home) == identity
    assert read == []
    put(folder / "model.safetensors", "changed model.safetensors")
    assert model_identity(str(folder), None, home) != identity
    assert read == ["model.safetensors"]


def test_a_file_written_this_moment_is_read_again(tmp_path: Path, folder: Path) -> None:
    home = tmp_path / "home"
    weights = folder / "model.safetensors"
    weights.write_text("one")
    stat = weights.stat()
    one = model_identity(str(folder), None, home)
    weights.write_text("two")  # same size, and here the same time stamp
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert model_identity(str(folder), None, home) != one


def test_a_home_that_cannot_be_written_costs_time_only(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "home").write_text("a file")
    good = model_identity(str(folder), None, tmp_path / "other")
    assert model_identity(str(folder), None, tmp_path / "home") == good


def test_damaged_notes_are_written_anew(tmp_path: Path, folder: Path) -> None:
    good = model_identity(str(folder), None, tmp_path)
    (notes,) = (tmp_path / "identities").iterdir()
    for damage in ("", "[1]", '{"config.json": 5}', "{"):
        notes.write_text(damage)
        assert model_identity(str(folder), None, tmp_path) == good


@pytest.mark.parametrize("call", [model_identity, resolve_model])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: (f / "config.json").unlink(), "has no config.json"),
        (lambda f: (f / "model.safetensors").unlink(), "no weights; safetensors only"),
        (
            lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
            r"only pickle weights \(pytorch_model.bin\); safetensors only",
        ),
        (
            lambda f: (f / "model.safetensors.index.json").write_text(
                json.dumps({"weight_map": {"x": "model-1.safetensors", "y": "model.safetensors"}})
            ),
            "1 weight files are missing, such as model-1.safetensors",
        ),
        (lambda f: (f / "model.safetensors.index.json").write_text("{"), "is damaged"),
        (lambda f: f.rename(f.with_name("moved")), "no such folder"),
    ],
)
def test_a_folder_without_a_usable_model_is_refused(
    tmp_path: Path,
    folder: Path,
    call: Callable[[str, None, Path], str],
    change: Callable[[Path], object],
    said: str,
) -> None:
    change(folder)
    with pytest.raises(DataError, match=said) as error:
        call(str(folder), None, tmp_path)
    assert str(error.value).startswith(f"agent model {folder}: ")
    assert "\n" not in str(error.value)


def test_paths_and_hub_ids_are_told_apart(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    identity = model_identity(str(folder), None, tmp_path)
    for same in ("models/mine", "./models/mine", "~/models/mine", "models/mine/"):
        assert model_identity(same, None, tmp_path) == identity
        assert Path(resolve_model(same, None, tmp_path)).resolve() == folder
    with pytest.raises(DataError, match="no such folder"):
        model_identity("./models/other", None, tmp_path)
    for neither in ("mine", "a/b/c", "org/na me"):
        with pytest.raises(DataError, match="nor a folder, nor a hub id"):
            model_identity(neither, None, tmp_path)


def test_labels_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    labels = {"embedded:a": "a", "Qwen/Qwen3-1.7B-Base": "Qwen3-1.7B-Base", "/x/mine/": "mine"}
    assert {model: model_label(model) for model in labels} == labels
    assert model_label(".") == tmp_path.name


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that holds org/name at COMMIT as main, and no network."""
    cache = tmp_path / "hub"
    snapshot = cache / "models--org--name" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (cache / "models--org--name" / "refs").mkdir()
    (cache / "models--org--name" / "refs" / "main").write_text(COMMIT)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").write_text("weights")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return cache


def test_a_cached_hub_model_is_identified_and_found_without_the_network(
    tmp_path: Path, cache: Path
) -> None:
    snapshot = cache / "models--org--name" / "snapshots" / COMMIT
    for revision in (None, "main", COMMIT):
        assert model_identity("org/name", revision, tmp_path) == f"hub:org/name@{COMMIT}"
        assert resolve_model("org/name", revision, tmp_path) == str(snapshot)


def test_a_commit_identifies_a_hub_model_even_if_it_is_not_cached(
    tmp_path: Path, cache: Path
) -> None:
    other = COMMIT[::-1]
    assert model_identity("org/other", other, tmp_path) == f"hub:org/other@{other}"


@pytest.mark.parametrize("call", [model_identity, resolve_model])
@pytest.mark.parametrize(("model", "revision"), [("org/other", None), ("org/name", "v2")])
def test_an_unknown_hub_model_without_a_network_is_one_line(
    tmp_path: Path,
    cache: Path,
    call: Callable[[str, str | None, Path], str],
    model: str,
    revision: str | None,
) -> None:
    with pytest.raises(DataError, match=f"{model} at .*not in the Hugging Face cache") as error:
        call(model, revision, tmp_path)
    assert "\n" not in str(error.value)


def test_a_part_of_a_hub_model_is_not_taken_for_all_of_it(tmp_path: Path, cache: Path) -> None:
    (cache / "models--org--name" / "snapshots" / COMMIT / "model.safetensors").unlink()
    with pytest.raises(DataError, match="agent model org/name"):
        hub.snapshot("org/name", None)
