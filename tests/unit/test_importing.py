"""Pretrained models from files, folders and packages become folders that can be trained."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hacpo.errors import DataError
from hacpo.models import gguf as gguf_reader
from hacpo.models import importing, packaged
from hacpo.models.identity import model_identity, model_label
from hacpo.models.imported import Imported, list_imported, read_note
from hacpo.models.importing import import_model
from hacpo.models.resolve import ensure_models, resolve_model
from hacpo.models.tokens import load_tokens
from hacpo.settings import AgentConfig
from tests.cli_runner import Cli
from tests.tiny import CHARACTERS, tiny_model, tiny_tokenizer
from tests.tiny_gguf import write_gguf


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "Tiny Llama.Q4.gguf")


@pytest.fixture(scope="module")
def imported(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return import_model(str(file), tmp_path_factory.mktemp("home"))[0]


@pytest.fixture
def package(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bytes | None], None]:
    """`pypi:tiny`, in two wheels of a folder that pip takes for its index."""
    data = file.read_bytes()
    monkeypatch.setitem(
        packaged.PACKAGES,
        "tiny",
        packaged.Package(
            requirements=("tiny-model-part1==1.0", "tiny-model-part2==1.0"),
            member="*/model.gguf.part0[01]",
            sha256=importing._sha256([file]),
            size=len(data),
            license="MIT",
            about="a test's",
        ),
    )
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    def publish(content: bytes | None = None) -> None:
        content = data if content is None else content
        half = len(content) // 2
        for number, part in enumerate((content[:half], content[half:])):
            write_wheel(wheels, f"tiny_model_part{number + 1}", f"model.gguf.part0{number}", part)

    return publish


def write_wheel(wheels: Path, project: str, member: str, content: bytes) -> None:
    with zipfile.ZipFile(wheels / f"{project}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{project}/__init__.py", "raise SystemExit('must not be run')")
        wheel.writestr(f"{project}/{member}", content)
        info = f"{project}-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any")
        wheel.writestr(f"{info}/RECORD", "")


def logits(folder: Path, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([ids])).logits


def test_an_imported_gguf_is_an_ordinary_folder(imported: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(imported)
    assert model.dtype == torch.float32
    assert model.lm_head.weight is model.model.embed_tokens.weight
    config = json.loads((imported / "config.json").read_text())
    assert config["rms_norm_eps"] == 1e-5  # not 9.999999747378752e-06
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)
    assert "_name_or_path" not in config
    assert model_identity(str(imported), None, tmp_path).startswith("local:")
    tokens = load_tokens("x", AgentConfig(model=str(imported)), imported)
    assert (tokens.end_ids, tokens.pad_id) == ((2,), 2)
    assert tokens.special_ids == {0, 1, 2}


def test_its_texts_begin_and_split_as_the_file_says(imported: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(imported)
    pieces = tokenizer.convert_ids_to_tokens(tokenizer("ab12")["input_ids"])
    assert pieces == ["<s>", "ab", "1", "2"]  # smollm: digit by digit, whatever the merges say
    other = import_model(str(write_gguf(tmp_path / "o.gguf", pre="gpt-2", bos=False)), tmp_path)[0]
    tokenizer = AutoTokenizer.from_pretrained(other)
    assert tokenizer.convert_ids_to_tokens(tokenizer("ab12")["input_ids"]) == ["ab", "12"]
    said: list[str] = []
    strange = write_gguf(tmp_path / "s.gguf", pre="never-heard-of", bos=None)
    folder, _ = import_model(str(strange), tmp_path, progress=said.append)
    assert any("'never-heard-of'" in line and "check it" in line for line in said)
    assert AutoTokenizer.from_pretrained(folder)("a")["input_ids"][0] != 1


def test_a_second_import_finds_the_first(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, is_new = import_model(str(file), tmp_path)
    monkeypatch.setattr(importing, "_write", None)
    assert (folder.parent, is_new) == (tmp_path / "models", True)
    assert folder.name.startswith("Tiny-Llama.Q4-")
    assert import_model(str(file), tmp_path) == (folder, False)
    note = read_note(folder)
    assert note is not None
    assert (note.source, note.dtype) == (str(file), "float32")
    assert list_imported(tmp_path) == [(folder, note)]


def test_parts_are_joined_and_the_file_alone_in_a_folder_is_found(
    file: Path, imported: Path, tmp_path: Path
) -> None:
    data, parts = file.read_bytes(), tmp_path / "parts"
    parts.mkdir()
    for number, at in enumerate(range(0, len(data), 20_000)):
        (parts / f"tiny.gguf.part{number:02d}").write_bytes(data[at : at + 20_000])
    folder, _ = import_model(str(parts), tmp_path)
    assert folder.name.startswith("tiny-")
    assert torch.equal(logits(folder, [5, 6]), logits(imported, [5, 6]))
    assert import_model(str(file.parent), tmp_path, name="tiny") == (folder, False)


def test_a_folder_in_shards_is_imported(tmp_path: Path) -> None:
    source = tiny_model(tmp_path / "tiny", tiny_tokenizer([*CHARACTERS]), width=16, seed=0)
    model = AutoModelForCausalLM.from_pretrained(source)
    (source / "model.safetensors").unlink()
    model.save_pretrained(source, max_shard_size="4KB")
    assert (source / "model.safetensors.index.json").exists()
    folder, _ = import_model(str(source), tmp_path, to=tmp_path / "out", dtype="bfloat16")
    assert folder == tmp_path / "out"
    assert not (folder / "model.safetensors.index.json").exists()
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert loaded.dtype == torch.bfloat16
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight.bfloat16())
    with pytest.raises(DataError, match="exists and holds something else"):
        import_model(str(source), tmp_path, to=folder)


def test_a_packaged_model_is_fetched_once_and_known_before(
    package: Callable[[bytes | None], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(None)
    identity = model_identity("pypi:tiny", None, tmp_path / "home")
    assert not (tmp_path / "home").exists()
    said: list[str] = []
    ensure_models(["pypi:tiny", "./folder"], tmp_path / "home", said.append)
    assert said[0] == "downloading pypi:tiny (0 MB, MIT): a test's"
    monkeypatch.setattr(packaged, "download", None)
    folder = Path(resolve_model("pypi:tiny", None, tmp_path / "home"))
    assert identity == f"pypi:tiny@{folder.name.removeprefix('tiny-')}"
    assert model_label("pypi:tiny") == "tiny"
    assert [entry.name for entry in folder.parent.glob("[!.]*")] == [folder.name]


def test_a_file_brought_by_hand_serves_as_the_packaged_model(
    package: Callable[[bytes | None], None], file: Path, tmp_path: Path
) -> None:
    folder, _ = import_model(str(file), tmp_path)
    assert Path(resolve_model("pypi:tiny", None, tmp_path)) == folder
    assert read_note(folder) == Imported(
        "tiny", str(file), f"gguf:{importing._sha256([file])}", "float32", "MIT"
    )


def test_what_the_index_holds_must_be_the_file_of_the_table(
    package: Callable[[bytes | None], None], file: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"pip cannot get tiny-model-part1==1.0 \(ERROR: ") as error:
        resolve_model("pypi:tiny", None, tmp_path)
    assert "hacpo models import FILE.gguf" in str(error.value)
    package(file.read_bytes()[:-1] + b"!")
    with pytest.raises(DataError, match="its sha256 differs"):
        resolve_model("pypi:tiny", None, tmp_path)
    write_wheel(tmp_path / "wheels", "tiny_model_part1", "other.txt", b"")
    with pytest.raises(DataError, match=r"holds no \*/model.gguf"):
        resolve_model("pypi:tiny", None, tmp_path)
    (tmp_path / "wheels" / "tiny_model_part1-1.0-py3-none-any.whl").write_bytes(b"no zip")
    with pytest.raises(DataError, match="pypi:tiny"):
        resolve_model("pypi:tiny", None, tmp_path)
    assert not list((tmp_path / "models").glob("[!.]*"))
    with pytest.raises(DataError, match=r"not among the packaged models \(pypi:smollm2, "):
        model_identity("pypi:other", None, tmp_path)


def test_an_import_that_fails_leaves_nothing_and_can_be_repeated(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gguf_reader, "load_gguf", interrupted)
        with pytest.raises(KeyboardInterrupt):
            import_model(str(file), tmp_path)
    assert not list((tmp_path / "models").glob("*/"))
    assert import_model(str(file), tmp_path)[1]


def truncated(folder: Path) -> None:
    data = write_gguf(folder / "x.gguf").read_bytes()
    (folder / "x.gguf").write_bytes(data[:500])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda f: None, "holds neither a config.json nor a .gguf"),
        (lambda f: (f / "x.gguf").write_bytes(b"\x00" * 99), "x.gguf is not a GGUF file"),
        (truncated, "not a GGUF file that can be read"),
        (lambda f: [write_gguf(f / n) for n in ("a.gguf", "b.gguf")], "holds 2 GGUF files; name"),
        (
            lambda f: [write_gguf(f / f"x-0000{n}-of-00002.gguf") for n in (1, 2)],
            "llama-gguf-split --merge",
        ),
        (
            lambda f: write_gguf(f / "x.gguf", leave_out="blk.0.ffn_up.weight"),
            "1 weights of a llama model are not in it, such as model.layers.0.mlp.up_proj",
        ),
    ],
)
def test_what_cannot_be_imported_is_one_line(
    tmp_path: Path, make: Callable[[Path], object], said: str
) -> None:
    (tmp_path / "source").mkdir()
    make(tmp_path / "source")
    with pytest.raises(DataError, match=said) as error:
        import_model(str(tmp_path / "source"), tmp_path / "home")
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "home" / "models").glob("[!.]*"))


def test_missing_files_names_and_packages_are_told(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in ("nothing.gguf", "./nothing"):
        with pytest.raises(DataError, match="no such file or folder"):
            import_model(source, tmp_path)
    with pytest.raises(DataError, match="letters, digits"):
        import_model(str(file), tmp_path, name="../x")
    monkeypatch.setattr(gguf_reader, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="needs gguf and accelerate; install hacpo"):
        import_model(str(file), tmp_path)


def test_a_gguf_named_in_a_config_is_refused_with_the_command(file: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="run `hacpo models import` on it"):
        model_identity(str(file), None, tmp_path)
    with pytest.raises(DataError, match="holds a GGUF file; run `hacpo models import "):
        resolve_model(str(file.parent), None, tmp_path)


def test_the_command_says_what_to_write_into_a_config(cli: Cli, home: Path, file: Path) -> None:
    done = cli("models", "import", str(file))
    folder = next((home / "models").glob("[!.]*/"))
    assert (done.code, done.out) == (0, f"model: {folder}\n")
    again = cli("models", "import", str(file), "--json")
    assert json.loads(again.out) == {"folder": str(folder), "new": False}
    listed = json.loads(cli("models", "list", "--json").out)["models"]
    assert {(row["model"], row["imported"]) for row in listed} == {
        (str(folder), True),
        ("pypi:smollm2", False),
        ("pypi:gemma3-270m", False),
    }
    assert "not imported yet" in cli("models", "list").out
    assert cli("models", "import", "pypi:other").code == 2
