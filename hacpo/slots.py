"""This machine's slots, its GPUs or else CPU slots, and who holds them.

A slot is a file. Whoever has locked it (flock) holds the slot, together with every process that
inherited the descriptor, until the last of them is gone: nothing is left to clean up, whatever is
killed. GPUs are locked for all users of the machine, CPU slots for one HACPO_HOME. Locks need a
local file system. Standard library only: a wrapper around every run loads this.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
import subprocess
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hacpo.errors import ConfigError, StorageError

GPU_FOLDER = Path("/tmp/hacpo-gpus")
POLL_SECONDS = 0.2
_HEX = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# Whole ones: an abbreviation or an index would be another name for the same GPU.
_UUID = re.compile(rf"(GPU|MIG)-{_HEX}|MIG-GPU-{_HEX}/\d+/\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """What a machine has, and where its locks lie."""

    names: tuple[str, ...]
    """UUIDs of GPUs, or cpu0, cpu1, ..."""
    are_gpus: bool
    folder: Path

    def path(self, name: str) -> Path:
        return self.folder / name.replace("/", "_")


NO_SLOTS = Slots(names=(), are_gpus=False, folder=Path())


def machine_slots(home: Path, environment: Mapping[str, str]) -> Slots:
    """The slots of this machine.

    HACPO_GPUS (a comma list of UUIDs, or `none`), else the GPUs that nvidia-smi lists and
    CUDA_VISIBLE_DEVICES doesn't hide; without any, HACPO_SLOTS CPU slots, one a core by default.

    Raises:
        ConfigError: a variable is malformed, or nvidia-smi fails.
    """
    gpus = _gpus(environment)
    if gpus:
        return Slots(names=tuple(dict.fromkeys(gpus)), are_gpus=True, folder=GPU_FOLDER)
    asked = environment.get("HACPO_SLOTS") or str(os.cpu_count() or 1)
    if not asked.isdecimal() or int(asked) < 1:
        raise ConfigError(f"HACPO_SLOTS={asked}: give the number of runs at the same time")
    names = tuple(f"cpu{index}" for index in range(int(asked)))
    return Slots(names=names, are_gpus=False, folder=home / "slots")


def _gpus(environment: Mapping[str, str]) -> list[str]:
    asked = environment.get("HACPO_GPUS")
    if asked == "none":
        return []
    if asked:
        uuids = [uuid.strip() for uuid in asked.split(",")]
        for uuid in uuids:
            if not _UUID.fullmatch(uuid):
                raise ConfigError(
                    f"HACPO_GPUS={asked}: {uuid or 'nothing'} is not the whole UUID of a GPU; "
                    "`nvidia-smi -L` shows them"
                )
        return uuids
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible in ("", "-1") or shutil.which("nvidia-smi", path=environment.get("PATH")) is None:
        return []
    found = _listed()
    return found if visible is None else [_choose(each, found) for each in visible.split(",")]


def _listed() -> list[str]:
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"nvidia-smi does not answer ({error}): {_WITHOUT}") from error
    uuids = done.stdout.split()
    if done.returncode or not all(map(_UUID.fullmatch, uuids)):
        said = " ".join((done.stdout + done.stderr).split())[:200]
        raise ConfigError(f"nvidia-smi fails ({said}): {_WITHOUT}")
    return uuids


_WITHOUT = "repair the driver, or set HACPO_GPUS=none to work on the CPU"


def _choose(device: str, found: list[str]) -> str:
    """One of CUDA_VISIBLE_DEVICES: an index or (the beginning of) a UUID."""
    device = device.strip()
    if device.isdecimal() and int(device) < len(found):
        return found[int(device)]
    fits = [uuid for uuid in found if device and uuid.startswith(device)]
    if len(fits) != 1:
        raise ConfigError(
            f"CUDA_VISIBLE_DEVICES names {device!r}, which is none of this machine's GPUs: "
            "set HACPO_GPUS to UUIDs that `nvidia-smi -L` shows"
        )
    return fits[0]


class Taker:
    """Takes slots for one run. What it opens, a forked process holds too.

    Raises:
        ConfigError: more slots are asked for than the machine has.
        StorageError: a lock cannot be opened, or is not what it should be.
    """

    def __init__(self, slots: Slots, count: int) -> None:
        if count > len(slots.names):
            kind = "GPUs" if slots.are_gpus else "CPU slots"
            raise ConfigError(
                f"{count} {kind} are asked for, but this machine has {len(slots.names)}: ask for "
                "fewer (job variable gpus), or start a worker on a larger machine"
            )
        self._count = count
        self._files: dict[str, int] = {}
        if not count:
            return
        _make_folder(slots)
        # Takers of the same slots queue here, so that one who wants several is not overtaken
        # for ever. Who has other slots in mind doesn't wait for slots that it may not use.
        queue = f"queue-{zlib.crc32(','.join(sorted(slots.names)).encode()):08x}"
        self._queue = _open(slots.folder / queue, shared=slots.are_gpus)
        for name in slots.names:
            self._files[name] = _open(slots.path(name), shared=slots.are_gpus)

    def take(self, holder: str) -> dict[str, int]:
        """Wait until the slots are free, and take them; all or none.

        Args:
            holder: what others are told who ask who has them; one line.

        Returns:
            Name -> descriptor. A process that is to hold them too must inherit these.
        """
        if not self._count:
            return {}
        fcntl.flock(self._queue, fcntl.LOCK_EX)
        try:
            while len(held := self._lock_free()) < self._count:
                for name in held:
                    fcntl.flock(self._files[name], fcntl.LOCK_UN)
                time.sleep(POLL_SECONDS)
        finally:
            fcntl.flock(self._queue, fcntl.LOCK_UN)
        for name in held:
            os.ftruncate(self._files[name], 0)
            os.pwrite(self._files[name], holder.encode(), 0)
        return {name: self._files[name] for name in held}

    def _lock_free(self) -> list[str]:
        held: list[str] = []
        for name, descriptor in self._files.items():
            if len(held) < self._count and _lock(descriptor):
                held.append(name)
        return held


def holders(slots: Slots) -> dict[str, str | None]:
    """Slot -> who holds it; None if it is free."""
    return {name: _holder(slots.path(name)) for name in slots.names}


def _holder(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None  # nobody ever took it, or a taker would be told
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, 200).decode(errors="replace").strip() or "somebody"
    finally:
        os.close(descriptor)
    return None


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make_folder(slots: Slots) -> None:
    try:
        if not slots.are_gpus:
            slots.folder.mkdir(parents=True, exist_ok=True)
            return
        with contextlib.suppress(FileExistsError), _no_umask():
            slots.folder.mkdir(mode=0o1777)
        if not stat.S_ISDIR(slots.folder.lstat().st_mode):
            raise StorageError(f"{slots.folder} is not a folder: remove it, GPU locks belong there")
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"{slots.folder}: {error.strerror}: slots are locked there") from error


def _open(path: Path, *, shared: bool) -> int:
    """A lock; with `shared` other users can lock it, too."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        try:
            # With O_CREAT the kernel refuses other users' files in a folder like /tmp.
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError), _no_umask():
                os.close(os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666 if shared else 0o600))
            descriptor = os.open(path, flags)
    except OSError as error:
        what = "a link" if error.errno == errno.ELOOP else error.strerror
        raise StorageError(f"{path}: {what}: remove it, a slot's lock belongs there") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageError(f"{path} is not a file: remove it, a slot's lock belongs there")
    return descriptor


@contextlib.contextmanager
def _no_umask() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)
