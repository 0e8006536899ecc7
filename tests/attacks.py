"""What a stranger may put in the place of a file, and a guard against who reads it whole."""

import contextlib
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

SECRET = b"what nobody may copy"
Attack = Callable[[Path, Path], None]  # gets the place, and a directory that is not the stranger's


def _long_head(place: Path, outside: Path) -> None:
    place.write_bytes(b"\x93NUMPY\2\0" + (2**32 - 1).to_bytes(4, "little"))
    os.truncate(place, 2**33)


def _objects(place: Path, outside: Path) -> None:
    with open(place, "wb") as file:
        np.save(file, np.array([[print]], object), allow_pickle=True)


ATTACKS: dict[str, Attack] = {
    "link to an array elsewhere": lambda place, outside: place.symlink_to(outside / "secret.npy"),
    "link to itself": lambda place, outside: place.symlink_to(place.name),
    "pipe": lambda place, outside: os.mkfifo(place),
    "directory": lambda place, outside: place.mkdir(),
    "head of four gigabytes": _long_head,
    "Python objects": _objects,
    "empty": lambda place, outside: place.touch(),
}


def make_outside(directory: Path, shape: tuple[int, ...]) -> Path:
    """A directory of the user's own, with things that are not the stranger's business."""
    directory.mkdir()
    (directory / "secret.txt").write_bytes(SECRET)
    array = np.zeros(shape, np.uint8)
    array.reshape(-1)[: len(SECRET)] = list(SECRET)
    np.save(directory / "secret.npy", array)
    return directory


@contextlib.contextmanager
def little_memory(gib: int) -> Iterator[None]:
    """The process cannot take more than so much beside what it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + gib * 2**30, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
