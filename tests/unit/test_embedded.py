import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hacpo.errors import DataError, StorageError
from hacpo.models import embedded
from hacpo.models.embedded import agent_folder, build, ensure
from hacpo.models.identity import model_identity
from hacpo.models.pretrain import END, PAD, make_tokenizer, pretrain, tokenize_solutions
from hacpo.models.recipes import EMBEDDED, Recipe, recipe_hash
from hacpo.models.resolve import ensure_models, resolve_model
from hacpo.problems import load_problems
from hacpo.problems.arithmetic import problem_of, solution_text, splits

ROOT = Path(__file__).parents[2]
SUMS = [*splits()[0][::40], *splits()[1][::8]]
PROBLEM_TEXTS = [problem_of(numbers).problem for numbers in SUMS]
SOLUTION_TEXTS = [solution_text(n, careless=c) for n in SUMS for c in (False, True)]
TINY = replace(EMBEDDED["a"], width=16, layers=1, heads=2, intermediate=32, batches=3)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Any]:
    return {name: make_tokenizer(recipe) for name, recipe in EMBEDDED.items()}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """Agent a as a recipe that takes a moment."""
    monkeypatch.setitem(EMBEDDED, "a", TINY)
    return TINY


def pieces(tokenizer: Any, text: str) -> list[str]:
    return list(tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]))


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return done.stdout


def weights_digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("name", "prompt", "solution"),
    [
        ("a", "3 7 + 5 8 =", "7 + 8 + 0 = 5 , 1 . 3 + 5 + 1 = 9 , 0 # 9 5"),
        ("b", "37 + 58 =", "7 + 8 + 0 = 5 , 1 . 3 + 5 + 1 = 9 , 0 # 95"),
        ("c", "3 7+ 5 8 =", "7+ 8+ 0= 5 ,1 . 3+ 5+ 1= 9 ,0 #9 5"),
    ],
)
def test_each_agent_cuts_text_in_its_own_way(
    tokenizers: dict[str, Any], name: str, prompt: str, solution: str
) -> None:
    assert pieces(tokenizers[name], "37+58=") == prompt.split()
    assert pieces(tokenizers[name], solution_text((37, "+", 58))) == solution.split()


def test_no_two_agents_read_a_problem_as_the_same_tokens(tokenizers: dict[str, Any]) -> None:
    for text in PROBLEM_TEXTS:
        assert len({tuple(pieces(t, text)) for t in tokenizers.values()}) == 3


def test_pairs_are_taken_greedily_from_the_left(tokenizers: dict[str, Any]) -> None:
    assert pieces(tokenizers["b"], "123+45678") == ["12", "3", "+", "45", "67", "8"]


@pytest.mark.parametrize("name", EMBEDDED)
def test_decoding_gives_back_exactly_the_encoded_text(
    tmp_path: Path, tokenizers: dict[str, Any], name: str
) -> None:
    tokenizers[name].save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    for tokenizer in (tokenizers[name], AutoTokenizer.from_pretrained(tmp_path)):
        for text in PROBLEM_TEXTS + SOLUTION_TEXTS:
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.decode(ids) == text
            assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids
        assert tokenizer.decode(tokenizer.eos_token_id) == END
        assert tokenizer.pad_token == PAD
        assert tokenizer.bos_token is None
        assert tokenizer.chat_template is None
        assert tokenizer(["37+58=", "+"], padding=True)["attention_mask"][1][-1] == 1


def test_every_agent_reads_what_another_wrote_without_a_change(tokenizers: dict[str, Any]) -> None:
    for source in tokenizers.values():
        for text in SOLUTION_TEXTS:
            heard = source.decode(source(text)["input_ids"])
            for learner in tokenizers.values():
                assert learner.decode(learner(heard)["input_ids"]) == text


@pytest.mark.parametrize("name", EMBEDDED)
def test_a_text_that_an_agent_cannot_read_is_an_error_not_a_loss(
    tokenizers: dict[str, Any], name: str
) -> None:
    with pytest.raises(Exception, match=r"(?i)unk"):
        tokenizers[name]("37*58=")


@pytest.mark.parametrize("name", EMBEDDED)
def test_agents_learn_the_solutions_of_train_problems_and_nothing_else(
    tokenizers: dict[str, Any], name: str
) -> None:
    tokenizer = tokenizers[name]
    solutions = tokenize_solutions(tokenizer)
    rows = solutions.token_ids.flatten(0, 1)[::37]
    learned = solutions.is_learned.flatten(0, 1)[::37]
    expected = [
        (problem_of(numbers).problem, solution_text(numbers, careless=careless))
        for numbers in splits()[0]
        for careless in (False, True)
    ][::37]
    held_out = {problem.problem for problem in load_problems("embedded:held_out")}
    for row, mask, (problem, solution) in zip(rows, learned, expected, strict=True):
        assert tokenizer.decode(row[mask]) == solution + END
        assert tokenizer.decode(row).startswith(problem + solution + END)
        assert problem not in held_out


def test_the_same_recipe_gives_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Recipe
) -> None:
    torch.manual_seed(1)
    one = weights_digest(build("a", tmp_path / "one"))
    torch.manual_seed(2)
    two = weights_digest(build("a", tmp_path / "two"))
    assert one == two
    monkeypatch.setitem(EMBEDDED, "a", replace(tiny, seed=1))
    assert weights_digest(build("a", tmp_path / "one")) != one


def test_building_writes_nothing_to_the_terminal(
    tmp_path: Path, tiny: Recipe, capfd: pytest.CaptureFixture[str]
) -> None:
    build("a", tmp_path)
    assert capfd.readouterr() == ("", "")


def test_building_leaves_torch_as_the_caller_set_it(tmp_path: Path, tiny: Recipe) -> None:
    torch.manual_seed(5)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    with torch.no_grad():
        build("a", tmp_path)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("name", EMBEDDED)
def test_pretraining_lowers_the_loss(name: str) -> None:
    small = replace(EMBEDDED[name], width=64, layers=1, intermediate=128, batches=60)
    lines: list[str] = []
    pretrain(small, lines.append)
    losses = [float(line.split()[-1]) for line in lines]
    assert len(losses) == 3
    # a guess among the tokens costs ln 18 = 2.9 or more
    assert losses[-1] < losses[0] < 2.9
    assert losses[-1] < 1.4


@pytest.mark.parametrize("name", EMBEDDED)
def test_an_agent_is_an_ordinary_model_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(EMBEDDED, name, replace(EMBEDDED[name], batches=1, batch_rows=2))
    folder = build(name, tmp_path)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (
        type(model).__name__
        == {"llama": "LlamaForCausalLM", "gpt2": "GPT2LMHeadModel"}[EMBEDDED[name].architecture]
    )
    for config in (model.config, model.generation_config):
        assert config.eos_token_id == tokenizer.eos_token_id
        assert config.pad_token_id == tokenizer.pad_token_id
        assert config.bos_token_id is None
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert model.get_input_embeddings().num_embeddings == len(tokenizer)
    assert model.config.max_position_embeddings >= 64
    model.train()
    ids = torch.tensor([tokenizer("37+58=")["input_ids"]])
    assert torch.equal(model(ids).logits, model(ids).logits)  # no dropout
    assert {file.name for file in folder.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "recipe.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert {file.stat().st_mode for file in folder.iterdir()} == {
        (folder / "config.json").stat().st_mode
    }


def test_a_present_agent_is_not_built_again(tmp_path: Path, tiny: Recipe) -> None:
    lines: list[str] = []
    first = build("a", tmp_path, progress=lines.append)
    assert lines
    lines.clear()
    written = (first / "model.safetensors").stat().st_mtime_ns
    assert build("a", tmp_path, progress=lines.append) == first
    assert ensure(["a"], tmp_path) == {"a": first}
    assert lines == []
    assert (first / "model.safetensors").stat().st_mtime_ns == written


def test_the_hash_changes_with_the_recipe_and_needs_no_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = recipe_hash("a")
    code = (
        "import sys; from hacpo.models.recipes import recipe_hash; print(recipe_hash('a'));"
        "import hacpo.models.resolve, hacpo.models.identity;"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    assert python(code).split("\n")[:2] == [before, "set()"]
    monkeypatch.setitem(EMBEDDED, "a", replace(EMBEDDED["a"], careless_additions=0.31))
    assert recipe_hash("a") != before
    assert len({recipe_hash(name) for name in EMBEDDED}) == 3


def test_an_unknown_agent_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    unknown: list[Callable[[], object]] = [
        lambda: build("z", tmp_path),
        lambda: model_identity("embedded:z", None, tmp_path),
        lambda: resolve_model("embedded:z", None, tmp_path),
    ]
    for call in unknown:
        with pytest.raises(DataError, match="'z': choose embedded:a, embedded:b, embedded:c"):
            call()


def test_an_interrupted_build_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Recipe
) -> None:
    def interrupted(recipe: Recipe, folder: Path, tell: Callable[[str], None]) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(embedded, "_write_agent", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build("a", tmp_path)
    assert [file.name for file in (tmp_path / "agents").iterdir()] == ["a.lock"]
    assert (build("a", tmp_path) / "model.safetensors").exists()


def test_a_home_that_cannot_be_written_is_one_line(tmp_path: Path, tiny: Recipe) -> None:
    (tmp_path / "agents").write_text("a file, not a folder")
    with pytest.raises(StorageError, match=r"embedded agents cannot be stored: .*HACPO_HOME"):
        build("a", tmp_path)


# Two processes with a builder that needs no torch. `a` is finished only once `b` has begun.
BUILDER = """
import os, sys, time
from pathlib import Path
from hacpo.models import embedded

home = Path(sys.argv[1])

def write(recipe, folder, tell):
    name = "a" if recipe is embedded.recipe("a") else "b"
    with open(home / "log", "a") as log:
        log.write(f"{name} {os.getpid()}\\n")
    (folder / "model.safetensors").write_text("half")
    (folder / str(os.getpid())).touch()
    deadline = time.monotonic() + float(sys.argv[2])
    while name == "a" and "b" not in (home / "log").read_text():
        if time.monotonic() > deadline:
            sys.exit("b was not begun while a was being built")
        time.sleep(0.02)
    time.sleep(0.3)
    (folder / "model.safetensors").write_text("whole")

embedded._write_agent = write
folders = embedded.ensure(["a", "b"], home, lambda line: print(line, flush=True))
print(*[(folder / "model.safetensors").read_text() for folder in folders.values()])
"""


def start_builder(home: Path, patience: float) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(home), str(patience)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture
def begun(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that builds `a` and has begun."""
    builder = start_builder(tmp_path, 60)
    while not (tmp_path / "log").exists():
        assert builder.poll() is None
    yield builder
    builder.kill()
    builder.wait()


def test_two_processes_build_one_agent_each(tmp_path: Path, begun: "subprocess.Popen[str]") -> None:
    second = start_builder(tmp_path, 60)
    outputs = [process.communicate(timeout=90)[0] for process in (begun, second)]
    built = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert built == [["a", str(begun.pid)], ["b", str(second.pid)]]
    for output in outputs:
        assert output.splitlines()[-1] == "whole whole"
    assert "waiting for agent a, built by another process" in outputs[1]


def test_a_killed_builder_leaves_nothing_that_is_taken_for_complete(
    tmp_path: Path, begun: "subprocess.Popen[str]"
) -> None:
    begun.kill()
    begun.wait()
    assert not agent_folder("a", tmp_path).exists()
    (tmp_path / "log").write_text("b\n")
    second = start_builder(tmp_path, 60)
    assert second.communicate(timeout=90)[0].splitlines()[-1] == "whole whole"
    names = sorted(file.name for file in (tmp_path / "agents").iterdir())
    folders = sorted(agent_folder(name, tmp_path).name for name in "ab")
    assert names == sorted([*folders, "a.lock", "b.lock"])
    files = {file.name for file in agent_folder("a", tmp_path).iterdir()}
    assert files == {"model.safetensors", str(second.pid)}


def test_only_the_embedded_models_of_a_config_are_built(tmp_path: Path, tiny: Recipe) -> None:
    ensure_models(["org/name", "./folder", "embedded:a", "embedded:a"], tmp_path)
    assert {file.name for file in (tmp_path / "agents").iterdir()} == {
        agent_folder("a", tmp_path).name,
        "a.lock",
    }
