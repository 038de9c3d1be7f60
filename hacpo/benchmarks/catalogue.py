"""Every benchmark and training set by name: file, protocol, where it comes from, how many problems.

A set is recognized by its `problems_digest`; where only a count is known, that is what is compared.
"""

from dataclasses import dataclass

from hacpo.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One place where a set is published, and what is known of its content."""

    name: str
    count: int
    digest: str | None = None
    """`hacpo.problems.problems_digest`, of content that was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """A data set of the Hugging Face hub."""

    id: str
    split: str
    configs: tuple[str, ...] = ("default",)
    """Read one after the other."""
    revision: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSet:
    """A benchmark, or a set to train on."""

    name: str
    title: str
    file: str
    """Name of its JSONL file."""
    samples: int = 1
    """1: one greedy answer to each problem; more: sampled at temperature 1; 0: to train on."""
    sources: tuple[Source, ...]
    hub: Hub | None = None

    @property
    def protocol(self) -> str:
        return "greedy" if self.samples == 1 else f"avg@{self.samples}"


_MATH_SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)

_SETS = (
    ProblemSet(
        name="math500",
        title="MATH-500",
        file="math500.jsonl",
        sources=(
            Source(
                name="HuggingFaceH4/MATH-500 and copies",
                count=500,
                digest="6bffb84bdea11595971c8acba67e403a6c943351ede9813eeef92e1844f4401e",
            ),
        ),
        hub=Hub(id="HuggingFaceH4/MATH-500", split="test"),
    ),
    ProblemSet(
        name="math",
        title="MATH",
        file="math_test.jsonl",
        sources=(
            Source(
                name="Hendrycks' test set in the order of math-evaluation-harness",
                count=5000,
                digest="beb92cbf8748b6458126b534bd551a3677fff02fa7bb803da1a1ec13e741894d",
            ),
            Source(name="hub, by subject", count=5000),
        ),
        hub=Hub(id="EleutherAI/hendrycks_math", split="test", configs=_MATH_SUBJECTS),
    ),
    ProblemSet(
        name="gsm8k",
        title="GSM8K",
        file="gsm8k.jsonl",
        sources=(
            Source(
                name="OpenAI's test set",
                count=1319,
                digest="2430a5e5042296615a92e2900abc7d050084b129c20d20e2881638f82899c9c3",
            ),
        ),
        hub=Hub(id="openai/gsm8k", split="test", configs=("main",)),
    ),
    ProblemSet(
        name="aime25",
        title="AIME 2025",
        file="aime25.jsonl",
        samples=30,
        sources=(Source(name="hub", count=30),),
        hub=Hub(id="math-ai/aime25", split="test"),
    ),
    ProblemSet(
        name="aime24",
        title="AIME 2024, which stands in for 2025 where that is missing",
        file="aime24.jsonl",
        samples=30,
        sources=(
            Source(
                name="AIME 2024 I and II",
                count=30,
                digest="43ebc17a28916b27b8aaaaca8adcad0321e9a11ed66eecb53000fb194318a578",
            ),
        ),
        hub=Hub(id="Maxwell-Jia/AIME_2024", split="train"),
    ),
    ProblemSet(
        name="amc23",
        title="AMC 2023",
        file="amc23.jsonl",
        sources=(
            Source(
                name="hub and copies",
                count=40,
                digest="6203dfec205420cdc34beb26f65448ae967e0c2c332703b14b34741d8b6d1f07",
            ),
        ),
        hub=Hub(id="math-ai/amc23", split="test"),
    ),
    ProblemSet(
        name="minerva",
        title="Minerva, the 272 problems of OCW courses",
        file="minerva.jsonl",
        sources=(
            Source(
                name="hub and copies",
                count=272,
                digest="c66aa358ba50c963e906325548345e75932591baffdfd047ea28a1a2df01bec6",
            ),
        ),
        hub=Hub(id="math-ai/minervamath", split="test"),
    ),
    ProblemSet(
        name="olympiad",
        title="OlympiadBench, text-only English mathematics",
        file="olympiad.jsonl",
        sources=(
            Source(name="hub", count=674),
            Source(
                name="the copy of Qwen2.5-Math and math-evaluation-harness",
                count=675,
                digest="c0d6284c26408046bd600812d28c64273a3d70773bc55ba1c460882cf4a2049f",
            ),
            Source(name="the paper: hub without two prompts over 1024 tokens", count=672),
        ),
        hub=Hub(id="Hothan/OlympiadBench", split="train", configs=("OE_TO_maths_en_COMP",)),
    ),
    ProblemSet(
        name="math_train",
        title="MATH, to train on",
        file="math_train.jsonl",
        samples=0,
        sources=(
            Source(name="hub, by subject", count=7500),
            Source(
                name="deepscaler's copy without four rows that have no answer",
                count=7470,
                digest="a0c6be9ccaa2ebcc8560c3ae883017a8f43ada81abdc46df761fd60defc38cfe",
            ),
        ),
        hub=Hub(id="EleutherAI/hendrycks_math", split="train", configs=_MATH_SUBJECTS),
    ),
    ProblemSet(
        name="gsm8k_train",
        title="GSM8K, to train on",
        file="gsm8k_train.jsonl",
        samples=0,
        sources=(
            Source(
                name="OpenAI's training set",
                count=7473,
                digest="e2f0ec2653700e1d3e27f1897aaa9363654f77aca015f97fc21bcf2558b0c8a5",
            ),
        ),
        hub=Hub(id="openai/gsm8k", split="train", configs=("main",)),
    ),
)

SETS: dict[str, ProblemSet] = {each.name: each for each in _SETS}
BENCHMARKS: dict[str, ProblemSet] = {name: each for name, each in SETS.items() if each.samples}
PAPER = ("math500", "math", "gsm8k", "aime25", "amc23", "minerva", "olympiad")
"""The columns of the paper's main table."""


def benchmark(name: str) -> ProblemSet:
    """A benchmark by name.

    Raises:
        ConfigError: unknown, with the known ones.
    """
    found = BENCHMARKS.get(name)
    if found is None:
        raise ConfigError(f"unknown benchmark {name!r}: choose from {', '.join(BENCHMARKS)}")
    return found


def problem_set(name: str) -> ProblemSet:
    """A benchmark or a set to train on by name.

    Raises:
        ConfigError: unknown, with the known ones.
    """
    found = SETS.get(name)
    if found is None:
        raise ConfigError(f"unknown data {name!r}: choose from {', '.join(SETS)}, or all")
    return found
