"""`hacpo verify`: rows in order, and one line for a file that cannot be used."""

import json
from pathlib import Path

import pytest

from tests.cli_runner import Cli

ROWS = [
    {"gold": r"\frac{1}{2}", "response": r"\boxed{\frac{1}{2}}"},
    {"gold": r"\frac{1}{2}", "response": r"\boxed{0.5}", "name": "ignored"},
    {"gold": "5", "response": r"\boxed{6}"},
    {"gold": "5", "response": "5"},
    {"gold": "1000", "response": r"\boxed{1,000}"},
]
OUTCOMES = ["exact", "equivalent", "wrong", "no_answer", "equivalent"]


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("form", ["jsonl", "array", "indented"])
def test_each_row_has_its_outcome_in_order(cli: Cli, tmp_path: Path, form: str) -> None:
    text = {
        "jsonl": "\n".join(json.dumps(row) for row in ROWS) + "\n\n",
        "array": json.dumps(ROWS),
        "indented": json.dumps(ROWS, indent=2) + "\n",
    }[form]
    done = cli("verify", written(tmp_path, "answers", text), "--json")
    assert (done.code, done.err) == (0, "")
    rows = json.loads(done.out)
    assert [row["outcome"] for row in rows] == OUTCOMES
    assert [row["reward"] for row in rows] == [1.0, 1.0, 0.0, 0.0, 1.0]


def test_strict_compares_as_verl(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path, "answers.json", json.dumps(ROWS))
    rows = json.loads(cli("verify", path, "--json", "--strict").out)
    outcomes = ["exact", "exact", "wrong", "no_answer", "wrong"]
    assert [row["outcome"] for row in rows] == outcomes


def test_people_get_a_table_with_counts(cli: Cli, tmp_path: Path) -> None:
    done = cli("verify", written(tmp_path, "answers.json", json.dumps(ROWS)))
    assert "2 equivalent, 1 exact, 1 wrong, 1 no_answer" in done.out


GOOD = json.dumps(ROWS[0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no answers"),
        ("\n \n", "holds no answers"),
        ("[]", "holds no answers"),
        (f'{GOOD}\n{{"gold": "5"}}\n', "line 2: 'response' is missing"),
        (f'[{GOOD},\n\n{{"response": "5"}}]', "line 3: 'gold' is missing"),
        (f'{GOOD}\n{{"gold": 5, "response": "5"}}\n', "line 2: gold is 5, not a string"),
        ('{"gold": " ", "response": "5"}', "line 1: gold is empty"),
        (f"{GOOD}\n5\n", "line 2: holds 5, not an object"),
        (f"{GOOD}\nno\n", "line 2: is not JSON"),
        (f"[{GOOD} {GOOD}]", "line 1: is not JSON"),
        (f"[{GOOD}", "line 1: is not JSON"),
        (f"[{GOOD},\n]", "is not JSON"),
        (f"[{GOOD}] more", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(
    cli: Cli, tmp_path: Path, text: str, said: str
) -> None:
    done = cli("verify", written(tmp_path, "answers", text), "--json")
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert len(done.err) < 400


def test_a_missing_file_a_folder_and_bytes_are_one_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, said in (("none", "no such file"), (".", "cannot be read"), ("bytes", "not UTF-8")):
        done = cli("verify", str(tmp_path / name))
        assert done.code == 2
        assert said in done.err
        assert done.err.count("\n") == 1
