"""Which slots a machine has, and the locks."""

import os
import stat
import uuid
from pathlib import Path

import pytest

from hacpo import slots
from hacpo.errors import ConfigError, StorageError
from hacpo.slots import Slots, Taker, holders, machine_slots

A, B, C = (f"GPU-{uuid.UUID(int=number)}" for number in (1, 2, 3))


def cpus(folder: Path, count: int = 2) -> Slots:
    names = tuple(f"cpu{index}" for index in range(count))
    return Slots(names=names, are_gpus=False, folder=folder)


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slots:
    """Two GPUs whose locks lie in a folder of the test's own."""
    monkeypatch.setattr(slots, "GPU_FOLDER", tmp_path / "gpus")
    return machine_slots(tmp_path, {"HACPO_GPUS": f"{A},{B}"})


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for nvidia-smi that lists three GPUs."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' {A} {B} {C}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


def test_a_slot_has_one_holder_and_is_free_when_its_descriptors_are_closed(tmp_path: Path) -> None:
    one, other = cpus(tmp_path), cpus(tmp_path)
    first = Taker(one, 1).take("run 1")
    second = Taker(other, 1).take("run 2")
    assert (set(first), set(second)) == ({"cpu0"}, {"cpu1"})
    assert holders(one) == {"cpu0": "run 1", "cpu1": "run 2"}
    inherited = os.dup(first["cpu0"])
    os.close(first["cpu0"])
    assert holders(one)["cpu0"] == "run 1"  # as long as anyone has it
    os.close(inherited)
    assert holders(one) == {"cpu0": None, "cpu1": "run 2"}
    assert set(Taker(other, 1).take("run 3")) == {"cpu0"}


def test_nothing_is_locked_for_no_slot(tmp_path: Path) -> None:
    assert Taker(slots.NO_SLOTS, 0).take("grid") == {}
    assert list(tmp_path.iterdir()) == []


def test_more_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="3 CPU slots are asked for, but this machine has 2"):
        Taker(cpus(tmp_path), 3)


def test_cpu_slots_are_a_homes_and_gpus_the_machines(tmp_path: Path) -> None:
    one = machine_slots(tmp_path / "a", {"HACPO_GPUS": "none", "HACPO_SLOTS": "3"})
    assert (one.names, one.folder) == (("cpu0", "cpu1", "cpu2"), tmp_path / "a" / "slots")
    assert len(machine_slots(tmp_path, {"HACPO_GPUS": "none"}).names) == os.cpu_count()
    two = [machine_slots(tmp_path / home, {"HACPO_GPUS": A}).folder for home in "ab"]
    assert two == [Path("/tmp/hacpo-gpus")] * 2


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"HACPO_GPUS": "0,1"}, "0 is not the whole UUID"),
        ({"HACPO_GPUS": A[:12]}, "is not the whole UUID"),
        ({"HACPO_GPUS": f"{A},"}, "nothing is not the whole UUID"),
        ({"HACPO_GPUS": "none", "HACPO_SLOTS": "0"}, "HACPO_SLOTS=0"),
        ({"HACPO_GPUS": "none", "HACPO_SLOTS": "two"}, "HACPO_SLOTS=two"),
    ],
)
def test_malformed_variables_are_one_line(
    tmp_path: Path, environment: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        machine_slots(tmp_path, environment)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, (A, B, C)),
        ("2,0", (C, A)),
        (B, (B,)),
        ("", ("cpu0",)),
        ("-1", ("cpu0",)),
    ],
)
def test_gpus_are_those_that_are_listed_and_not_hidden(
    tmp_path: Path, smi: Path, visible: str | None, names: tuple[str, ...]
) -> None:
    environment = {"PATH": os.environ["PATH"], "HACPO_SLOTS": "1"}
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    assert machine_slots(tmp_path, environment).names == names


@pytest.mark.parametrize("visible", ["3", A[:-4], "0,,1", "GPU-nonsense"])
def test_a_visible_device_that_is_not_one_gpu_is_refused(
    tmp_path: Path, smi: Path, visible: str
) -> None:
    environment = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": visible}
    with pytest.raises(ConfigError, match="none of this machine's GPUs"):
        machine_slots(tmp_path, environment)


def test_a_driver_that_fails_is_not_taken_for_a_machine_without_gpus(
    tmp_path: Path, smi: Path
) -> None:
    smi.write_text("#!/bin/sh\necho 'Failed to initialize NVML'\nexit 9\n")
    with pytest.raises(ConfigError, match=r"Failed to initialize NVML.*HACPO_GPUS=none"):
        machine_slots(tmp_path, {"PATH": os.environ["PATH"]})


def test_other_users_can_lock_gpus_whatever_the_umask(gpus: Slots) -> None:
    before = os.umask(0o077)
    try:
        Taker(gpus, 1).take("run")
    finally:
        os.umask(before)
    assert stat.S_IMODE(gpus.folder.stat().st_mode) == 0o1777
    assert {stat.S_IMODE(path.stat().st_mode) for path in gpus.folder.iterdir()} == {0o666}


def test_links_are_refused(gpus: Slots, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    gpus.folder.symlink_to(elsewhere)
    with pytest.raises(StorageError, match="is not a folder: remove it"):
        Taker(gpus, 1)
    gpus.folder.unlink()
    gpus.folder.mkdir()
    gpus.path(A).symlink_to(elsewhere / "file")
    with pytest.raises(StorageError, match="a link: remove it"):
        Taker(gpus, 1)
    gpus.path(A).unlink()
    os.mkfifo(gpus.path(A))
    with pytest.raises(StorageError, match="is not a file: remove it"):
        Taker(gpus, 1)
    assert list(elsewhere.iterdir()) == []
