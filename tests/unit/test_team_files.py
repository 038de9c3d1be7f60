"""The team's files, as far as they can be judged without Docker, systemd's manager or a cluster."""

import configparser
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from dockerfile_parse import DockerfileParser
from mlflow.cli import cli as mlflow_cli
from mlflow.server.security_utils import is_allowed_host_header

import hacpo
from tests.team_files import (
    COMPOSE,
    INFRA,
    SECRETS,
    UNIT,
    example,
    manifests,
    pinned,
    references,
    section,
)


def test_compose_follows_its_specification() -> None:
    vendored = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = json.loads(vendored.read_text(encoding="utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    validator.validate(COMPOSE)
    broken = COMPOSE | {"services": {"s3": {"image": "x", "port": ["9000"]}}}
    with pytest.raises(jsonschema.ValidationError, match="port"):
        validator.validate(broken)


def test_what_compose_depends_on_is_there_and_can_become_so() -> None:
    services = COMPOSE["services"]
    for name, service in services.items():
        on = service.get("depends_on", {})
        for other in on:
            assert other in services, (name, other)
            if isinstance(on, dict) and on[other]["condition"] == "service_healthy":
                assert "healthcheck" in services[other], (name, other)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (INFRA / source).is_file(), volume
    for service in services.values():
        if "build" in service:
            root = INFRA / service["build"]["context"]
            assert (root / service["build"]["dockerfile"]).is_file()


def test_secrets_have_no_default_and_nothing_else_is_written_down() -> None:
    text = (INFRA / "compose.yaml").read_text()
    for name in SECRETS:
        uses = re.findall(rf"\$\{{{name}[^}}]*\}}", text)
        assert uses, name
        assert set(uses) == {f"${{{name}:?}}"}
        assert example()[name] == "", f"{name} has a value in env.example"
    for service in COMPOSE["services"].values():
        for variable, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|AUTH_STRING|_KEY", variable):
                assert re.fullmatch(r"\$\{\w+:\?\}", value), variable


def test_ports_are_published_on_loopback_unless_asked_otherwise() -> None:
    published = [p for s in COMPOSE["services"].values() for p in s.get("ports", [])]
    assert len(published) == 4
    assert all(port.startswith("${HACPO_BIND:-127.0.0.1}:") for port in published)
    assert example()["HACPO_BIND"] == "127.0.0.1"


def test_every_variable_is_documented_and_every_documented_one_used() -> None:
    compose, unit = (INFRA / "compose.yaml").read_text(), UNIT.read_text()
    script = "".join((INFRA / f"team{end}").read_text() for end in ("_stack.py", ".sh"))
    workers = section("workers") | section("worker machines")
    assert references(compose) <= set(example())
    assert references(unit) <= workers
    assert not section("worker machines") & SECRETS
    composes_own = {"COMPOSE_PROFILES"}
    elsewhere = {name for name in example() if re.search(rf"\b{name}\b", unit + script)}
    assert set(example()) <= references(compose) | elsewhere | composes_own | workers
    # The rest of a worker's are read by the programs: by those here, or by Prefect's and MLflow's.
    sources = "".join(p.read_text() for p in (INFRA.parent / "hacpo").rglob("*.py"))
    for name in workers - references(compose) - {"HACPO_LIMIT", "HACPO_CHECKOUT"}:
        assert name in sources, name
    assert "HACPO_CHECKOUT" in (INFRA / "prefect.yaml").read_text()


def test_defaults_are_the_same_everywhere() -> None:
    text = (INFRA / "compose.yaml").read_text()
    for name, value in re.findall(r"\$\{(\w+):-([^}]*)\}", text):
        assert example()[name] == value, name


def test_images_are_pinned_and_do_not_run_as_root() -> None:
    assert not pinned("postgres:17")
    for name, service in COMPOSE["services"].items():
        assert pinned(service["image"]), name
        if service["image"].startswith("hacpo"):
            assert service["image"].endswith(f":{hacpo.__version__}")
    for _, manifest in manifests():
        if manifest["kind"] == "Deployment":
            spec = manifest["spec"]["template"]["spec"]
            assert spec["securityContext"]["runAsNonRoot"]
            assert all(pinned(container["image"]) for container in spec["containers"])


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.gpu"])
def test_a_dockerfile_can_be_built_as_far_as_one_can_read(name: str, tmp_path: Path) -> None:
    parser = DockerfileParser(path=str(tmp_path), env_replace=False)
    parser.content = (INFRA / "docker" / name).read_text()
    steps = parser.structure
    assert pinned(parser.baseimage)
    users = [step["value"] for step in steps if step["instruction"] == "USER"]
    assert users == ["hacpo"]  # and nothing is installed after it
    assert [s["instruction"] for s in steps].index("USER") > max(
        i for i, step in enumerate(steps) if step["instruction"] in ("RUN", "COPY")
    )
    allowed = (INFRA.parent / ".dockerignore").read_text().splitlines()
    for step in steps:
        if step["instruction"] == "COPY":
            *sources, _ = step["value"].split()
            for source in sources:
                assert (INFRA.parent / source).exists(), source
                assert f"!{source.split('/')[0]}" in allowed, source
    for step in steps:
        if step["instruction"] in ("ARG", "ENV"):
            assert not re.search("PASSWORD|SECRET|TOKEN|AUTH", step["value"]), step["value"]
    installs = " ".join(step["value"] for step in steps if step["instruction"] == "RUN")
    assert "--constraint infra/constraints.txt" in installs
    extras = re.findall(r'"\.\[(.*?)\]"', installs)
    pyproject = (INFRA.parent / "pyproject.toml").read_text()
    for extra in extras[0].split(","):
        assert re.search(rf"^{extra} = \[", pyproject, re.M), extra


def test_both_images_have_the_torch_of_the_install_script() -> None:
    pin = re.search(r'TORCH="(torch==[\d.]+)"', (INFRA / "install.sh").read_text())
    assert pin is not None
    assert f"ARG TORCH={pin.group(1)}\n" in (INFRA / "docker" / "Dockerfile").read_text()


def test_the_systemd_unit_is_understood_and_leaves_trainings_alone(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze here")
    prefect = Path(sys.executable).parent / "prefect"
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/hacpo/.venv/bin/prefect", str(prefect)))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(unit.read_text() + "\n[Service]\nRestrat=no\n")
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True)
    assert "Restrat" in done.stderr  # so that silence above means something


def test_a_restart_of_the_worker_does_not_end_its_runs() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNIT.read_text())
    service = parser["Service"]
    assert service["KillMode"] == "process"
    assert service["Restart"] == "always"
    assert service["OOMPolicy"] == "continue"
    assert "PrivateTmp" not in service


def commands() -> Iterator[list[str]]:
    """What is executed by compose, the unit and the cluster."""
    for service in COMPOSE["services"].values():
        if service["image"].startswith("hacpo"):
            command = service["command"]
            script = command[2] if command[:2] == ["sh", "-c"] else None
            yield from map(str.split, script.split(" && ")) if script else [command]
    for _, manifest in manifests():
        if manifest["kind"] == "Deployment":
            for container in manifest["spec"]["template"]["spec"]["containers"]:
                yield container["args"]
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.M)
    yield ["prefect", *line.split()[1:]]


def test_the_commands_and_their_options_exist() -> None:
    asked: dict[tuple[str, ...], set[str]] = {}
    for program, *words in commands():
        options = {word.split("=")[0] for word in words if word.startswith("--")}
        if program == "python":
            assert (INFRA.parent / words[0]).is_file()
        elif program == "mlflow":
            known = {o for option in mlflow_cli.commands[words[0]].params for o in option.opts}
            assert options <= known
        else:
            assert program == "prefect"
            names = itertools.takewhile(
                lambda word: not word.startswith("-"), words[words[0][0] == "-" :]
            )
            asked.setdefault(tuple(names), set()).update(options - {"--no-prompt"})
    assert set(asked) == {("server", "start"), ("worker", "start"), ("deploy",)}
    for names, options in asked.items():
        told = prefect_help(names)
        for option in options:
            assert re.search(rf"{option}\b", told), (names, option)


def prefect_help(words: tuple[str, ...]) -> str:
    prefect = str(Path(sys.executable).parent / "prefect")
    done = subprocess.run(
        [prefect, *words, "--help"],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_mlflow_answers_to_its_names_in_compose() -> None:
    allowed = example()["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
    inside = COMPOSE["services"]["worker-cells"]["environment"]["MLFLOW_TRACKING_URI"]
    outside = example()["MLFLOW_TRACKING_URI"]
    for uri in (inside, outside):
        assert is_allowed_host_header(allowed, uri.removeprefix("http://"))
    assert not is_allowed_host_header(allowed, "evil.example:5000")
