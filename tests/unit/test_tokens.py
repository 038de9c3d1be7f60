"""Reading one's own and other agents' responses."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken

from hacpo.errors import DataError
from hacpo.models.tokens import AgentTokens, load_tokens
from hacpo.settings import AgentConfig
from hacpo.types import Problem, Rollout
from tests.tiny import CHARACTERS, PAIRS, tiny_model, tiny_tokenizer

PROBLEM = Problem(id="p", problem="001+010=", answer="1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens")


def tokens_of(folder: Path, pieces: list[str], name: str) -> AgentTokens:
    path = folder / name
    if not path.exists():
        tiny_model(path, tiny_tokenizer(pieces), width=16, seed=0)
    return load_tokens(name, AgentConfig(model=str(path)), path)


@pytest.fixture(scope="module")
def one(folder: Path) -> AgentTokens:
    return tokens_of(folder, [*CHARACTERS], "one")


@pytest.fixture(scope="module")
def pairs(folder: Path) -> AgentTokens:
    return tokens_of(folder, [*PAIRS, *CHARACTERS], "pairs")


def rollout(tokens: AgentTokens, text: str, *, ended: bool = True) -> Rollout:
    ids = tokens.encode(text) + ([tokens.end_ids[0]] if ended else [])
    return Rollout(
        id="r",
        problem_id="p",
        source=tokens.agent,
        token_ids=ids,
        text=tokens.decode(ids),
        finish_reason="stop" if ended else "length",
        sampler_logprobs=[0.0] * len(ids),
        source_logprobs=[0.0] * len(ids),
        entropy=0.0,
    )


def test_a_self_row_keeps_the_sampled_ids(one: AgentTokens) -> None:
    row = rollout(one, "#1")
    assert one.self_view(row, [7]).response_ids == row.token_ids


def test_a_cross_row_is_the_same_text_in_the_learners_tokens(
    one: AgentTokens, pairs: AgentTokens
) -> None:
    row = rollout(one, "0110#1")
    view = pairs.cross_view(row, pairs.render(PROBLEM), unshared="", max_tokens=9)
    assert pairs.tokenizer.convert_ids_to_tokens(view.response_ids) == [
        "01",
        "10",
        "#",
        "1",
        "<eos>",
    ]
    assert len(row.token_ids) == 7  # six characters and the end


def test_a_truncated_cross_row_gets_no_end_token(one: AgentTokens, pairs: AgentTokens) -> None:
    view = pairs.cross_view(rollout(one, "01", ended=False), [1], unshared="", max_tokens=9)
    assert pairs.tokenizer.convert_ids_to_tokens(view.response_ids) == ["01"]


def test_a_row_too_long_for_the_learner_has_no_loss_term(
    one: AgentTokens, pairs: AgentTokens
) -> None:
    view = pairs.cross_view(rollout(one, "0#1"), [1], unshared="", max_tokens=3)
    assert (view.excluded, view.response_ids) == ("overflow", [])
    assert not pairs.cross_view(rollout(one, "01"), [1], unshared="", max_tokens=3).excluded


def test_what_cannot_be_told_to_others_is_not_shared(one: AgentTokens) -> None:
    assert one.unshared_reason(rollout(one, "#1")) == ""
    assert one.unshared_reason(rollout(one, "")) == "empty"
    special = rollout(one, "#1")
    special.token_ids.insert(0, one.pad_id)
    assert one.unshared_reason(special) == "special_token"


def test_undecodable_bytes_are_not_shared(one: AgentTokens) -> None:
    row = rollout(one, "#1")
    broken = Rollout(
        **{f: getattr(row, f) for f in row.__slots__} | {"text": "#\N{REPLACEMENT CHARACTER}"}
    )
    assert one.unshared_reason(broken) == "undecodable"


def test_a_special_token_spelled_out_is_caught_on_the_learners_side(
    one: AgentTokens, pairs: AgentTokens
) -> None:
    row = rollout(one, "#1")
    spelled = Rollout(**{f: getattr(row, f) for f in row.__slots__} | {"text": "#1<pad>"})
    assert pairs.cross_view(spelled, [1], unshared="", max_tokens=9).excluded == "special_token"


def test_a_text_that_the_learner_cannot_spell_is_excluded_and_a_prompt_refused() -> None:
    from hacpo.models.pretrain import make_tokenizer
    from hacpo.models.recipes import recipe

    tokenizer = make_tokenizer(recipe("a"))
    strict = AgentTokens("x", tokenizer, "{problem}", (1,), 0, frozenset({0, 1}))
    row = rollout_of_text("seven")
    view = strict.cross_view(row, [2], unshared="", max_tokens=9)
    assert (view.excluded, view.response_ids) == ("unreadable", [])
    with pytest.raises(DataError, match="agent 'x': cannot read problem 'w'"):
        strict.render(Problem(id="w", problem="seven + one", answer="8"))


def rollout_of_text(text: str) -> Rollout:
    return Rollout(
        id="r",
        problem_id="p",
        source="other",
        token_ids=[5, 6],
        text=text,
        finish_reason="stop",
        sampler_logprobs=[0.0, 0.0],
        source_logprobs=[0.0, 0.0],
        entropy=0.0,
    )


def test_the_end_token_is_left_out_of_the_text(one: AgentTokens) -> None:
    assert one.decode([*one.encode("#1"), one.end_ids[0]]) == "#1"


def test_the_prompt_template_surrounds_the_problem(folder: Path, one: AgentTokens) -> None:
    config = AgentConfig(model=str(folder / "one"), prompt="#{problem}#")
    dressed = load_tokens("one", config, folder / "one")
    assert dressed.tokenizer.decode(dressed.render(PROBLEM)) == "#001+010=#"
    assert one.tokenizer.decode(one.render(PROBLEM)) == "001+010="


def test_a_model_without_end_token_is_refused(folder: Path) -> None:
    path = folder / "endless"
    tiny_model(path, tiny_tokenizer([*CHARACTERS], end=False), width=16, seed=0)
    with pytest.raises(DataError, match=r"agent 'x'.*names no end token"):
        load_tokens("x", AgentConfig(model=str(path)), path)


def test_further_end_tokens_come_first(folder: Path, one: AgentTokens) -> None:
    config = AgentConfig(model=str(folder / "one"), end_tokens=("=",))
    tokens = load_tokens("one", config, folder / "one")
    assert tokens.end_ids == (one.encode("=")[0], *one.end_ids)
    assert tokens.decode([*one.encode("#1="), *one.encode("=")]) == "#1="
    view = tokens.cross_view(rollout(one, "#1"), [1], unshared="", max_tokens=9)
    assert view.response_ids == one.encode("#1=")
    row = rollout_of_text("1=1")
    assert tokens.cross_view(row, [1], unshared="", max_tokens=9).excluded == "special_token"


@pytest.mark.parametrize("text", ["#1", "x"])
def test_an_end_token_that_is_no_single_token_is_refused(
    folder: Path, one: AgentTokens, text: str
) -> None:
    config = AgentConfig(model=str(folder / "one"), end_tokens=(text,))
    with pytest.raises(DataError, match=f"agent 'x': .* no single token for end_tokens '{text}'"):
        load_tokens("x", config, folder / "one")


def change_json(file: Path, **values: object) -> None:
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(known | values))


def test_every_end_token_of_the_generation_config_ends_a_response(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer([*CHARACTERS])
    tiny_model(tmp_path / "m", tokenizer, width=16, seed=0)
    ends = [tokenizer.convert_tokens_to_ids("="), tokenizer.eos_token_id]
    change_json(tmp_path / "m" / "generation_config.json", eos_token_id=ends)
    tokens = load_tokens("x", AgentConfig(model=str(tmp_path / "m")), tmp_path / "m")
    assert tokens.end_ids == (ends[1], ends[0])  # the tokenizer's own first


def test_a_tokenizer_without_pad_token_pads_with_its_end(tmp_path: Path) -> None:
    tiny_model(tmp_path / "m", tiny_tokenizer([*CHARACTERS]), width=16, seed=0)
    settings = json.loads((tmp_path / "m" / "tokenizer_config.json").read_text())
    settings.pop("pad_token")
    (tmp_path / "m" / "tokenizer_config.json").write_text(json.dumps(settings))
    change_json(tmp_path / "m" / "tokenizer.json", padding=None)
    change_json(tmp_path / "m" / "config.json", pad_token_id=None)
    config = AgentConfig(model=str(tmp_path / "m"), end_tokens=("=",))
    tokens = load_tokens("x", config, tmp_path / "m")
    assert tokens.tokenizer.pad_token_id is None
    assert tokens.pad_id == tokens.tokenizer.eos_token_id != tokens.end_ids[0]


def without_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_tokenizer, "has no tokenizer; copy"),
        (lambda f: change_json(f / "config.json", vocab_size=3), "ids up to 6 but .* of 3 rows"),
        (
            lambda f: change_json(f / "config.json", architectures=["LlamaForTokenClassification"]),
            r"no causal language model but llama \(LlamaForTokenClassification\)",
        ),
        (lambda f: change_json(f / "config.json", model_type="vit"), "no causal language model"),
        (lambda f: change_json(f / "config.json", model_type="t5"), "no causal language model"),
        (lambda f: change_json(f / "config.json", model_type="never"), "cannot be loaded"),
        (lambda f: (f / "tokenizer.json").write_text("{"), "cannot be loaded"),
        (lambda f: (f / "config.json").write_text("{"), "cannot be loaded"),
        (
            lambda f: change_json(
                f / "config.json", model_type="own", auto_map={"AutoConfig": "own.OwnConfig"}
            ),
            "comes with code of its own; set trust_remote_code: true",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(
    tmp_path: Path, change: Callable[[Path], object], said: str
) -> None:
    path = tiny_model(tmp_path / "m", tiny_tokenizer([*CHARACTERS]), width=16, seed=0)
    change(path)
    with pytest.raises(DataError, match=said) as error:
        load_tokens("x", AgentConfig(model=str(path)), path)
    assert str(error.value).startswith("agent 'x': ")
    assert "\n" not in str(error.value)


def test_code_of_a_model_runs_only_if_the_config_says_so(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m", tiny_tokenizer([*CHARACTERS]), width=16, seed=0)
    (path / "own.py").write_text(
        "from pathlib import Path\n"
        "from transformers import LlamaConfig\n"
        f"Path({str(tmp_path / 'ran')!r}).touch()\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own'\n"
    )
    auto_map = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    change_json(path / "config.json", model_type="own", auto_map=auto_map)
    with pytest.raises(DataError, match="code of its own"):
        load_tokens("x", AgentConfig(model=str(path)), path)
    assert not (tmp_path / "ran").exists()
    load_tokens("x", AgentConfig(model=str(path), trust_remote_code=True), path)
    assert (tmp_path / "ran").exists()


def test_control_tokens_of_a_vocabulary_are_special(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer([*CHARACTERS])
    tokenizer.add_tokens([AddedToken("<turn>", special=True), AddedToken("<b>", special=False)])
    path = tiny_model(tmp_path / "m", tokenizer, width=16, seed=0)
    tokens = load_tokens("x", AgentConfig(model=str(path)), path)
    turn, plain = tokenizer.convert_tokens_to_ids(["<turn>", "<b>"])
    assert turn in tokens.special_ids
    assert plain not in tokens.special_ids


THINKS = "{% if thinks %}00{% else %}11{% endif %}{{ messages[0].content }}"


def test_variables_of_a_chat_template_reach_it(folder: Path) -> None:
    path = folder / "template"
    tokenizer = tiny_tokenizer([*CHARACTERS])
    tokenizer.chat_template = THINKS
    tiny_model(path, tokenizer, width=16, seed=0)
    for variables, start in (({}, "11"), ({"thinks": True}, "00"), ({"thinks": False}, "11")):
        config = AgentConfig(model=str(path), chat_template_kwargs=variables)
        ids = load_tokens("t", config, path).render(PROBLEM)
        assert tokenizer.decode(ids).replace(" ", "") == f"{start}001+010="


def test_variables_without_a_template_or_of_the_tokenizers_own_are_refused(folder: Path) -> None:
    path = folder / "plain"
    tiny_model(path, tiny_tokenizer([*CHARACTERS]), width=16, seed=0)
    config = AgentConfig(model=str(path), chat_template_kwargs={"thinks": False})
    with pytest.raises(DataError, match="has no chat template; remove chat_template_kwargs"):
        load_tokens("t", config, path)
    with pytest.raises(ValueError, match="max_length is no variable of a template"):
        AgentConfig(model="m", chat_template_kwargs={"max_length": 5})
