"""Reading one's own and other agents' responses."""

from pathlib import Path

import pytest

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
