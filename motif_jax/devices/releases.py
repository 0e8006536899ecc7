"""Releases: directories with a trained policy, its reward, and a card, which others can load.

    README.md             the card: use, training, results, licence
    config.json           metadata of the arrays, metrics for the card, and the SHA-256 of every other file
    policy.safetensors    params.*, frozen.*, and sources.NAME.* for reward sources beside the learnt reward
    reward.safetensors    params.*, captions, counts
    best.npz              a replay of the best evaluated episode

This is also the layout of a model on the Hugging Face Hub. The releases that come with the program are in
motif_jax/zoo; their names are `motif_jax/NAME`. Reading a release does not execute code: it has only arrays, JSON and
text, each file must have its SHA-256, and classes that the metadata name are used only if the program has them
(rewards/source.py). This module does not load JAX.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from motif_jax.files import checkpoint_steps, read_json, to_plain, write_json, write_whole
from motif_jax.structs import Need, UserCodeError, UserError, legible, naming
from motif_jax.system.foreign import LIMIT, parse_foreign_json, read_bytes, sha256_of

ZOO = Path(__file__).parents[1] / "zoo"
PREFIX = "motif_jax"  # of the names of releases that come with the program
CARD, METADATA, REPLAY = "README.md", "config.json", "best.npz"
CHECKSUM = "checksum"  # a key of config.json
RELEASED = ("policy", "reward")
FORMAT = 1  # version of this layout
LARGEST = 2**34  # bytes of one file
Metadata = dict[str, Any]


def find_release(path: Path) -> Path | None:
    """The directory of the release with this path or this name, `motif_jax/NAME`; None for other paths."""
    if is_release(path):
        return path
    if len(path.parts) != 2 or path.parts[0] != PREFIX or os.path.exists(path):
        return None
    if is_release(ZOO / path.name):
        return ZOO / path.name
    names = [f"{PREFIX}/{directory.name}" for directory in sorted(ZOO.glob("*")) if is_release(directory)]
    raise UserError(f"there is no release {str(path)!r}; this version has {', '.join(names)}")


def saved_facts(path: Path, kind: str) -> list[Path]:
    """The files with the checksums of a saved "policy" or "reward", in a release or in checkpoints; [] without one."""
    path = Path(os.path.expanduser(path))
    if release := find_release(path):
        return [release / METADATA]
    places = path / kind / "checkpoints", path / "checkpoints", path
    return next(filter(None, (sorted(place.glob("[0-9]*/facts/*")) for place in places)), [])


def find_checkpoints(path: Path, kind: str = "reward") -> Path:
    """The directory with checkpoints of a "reward", a "policy" or "values": `path`, or the usual place below it."""
    for directory in (path / kind / "checkpoints", path / "checkpoints", path):
        if checkpoint_steps(directory):
            return directory
    missing = f"there {'are' if kind.endswith('s') else 'is'} no {kind} in {str(path)!r}"
    raise UserError(f"{missing}: no directory with checkpoints")


def find_saved(path: Path, kind: str) -> Path:
    """The directory with a "policy" or a "reward": a release, or checkpoints at `path` or at the usual place below."""
    path = Path(os.path.expanduser(path))
    return find_release(path) or find_checkpoints(path, kind)


def list_saved(path: Path, kind: str) -> tuple[Path, list[int]]:
    """The directory of `find_saved`, and the numbers of its checkpoints, ascending; a release has one."""
    directory = find_saved(path, kind).resolve()
    if is_release(directory):
        return directory, [_of_kind(directory, read_metadata(directory), kind)["step"]]
    return directory, checkpoint_steps(directory)


def chosen_values(directory: Path, steps: Sequence[int]) -> int:
    """Of these checkpoints the one that train_values chose by the return of games, or the last."""
    summary = directory.parent / "summary.json"
    chosen = read_json(summary)["checkpoint"] if summary.exists() else -1
    return int(chosen) if chosen in steps else steps[-1]


def needs_saved(path: str, kind: str, flag: str, which: str = "last") -> Iterator[Need]:
    """What a value of the config needs that names a "policy" or a "reward", or nothing if it is empty.

    `which`: "last", "best" or the number of a checkpoint.
    """

    def check() -> None:
        with naming(flag):
            if not (os.path.isdir(found) or find_release(found)):  # False for a name that is too long
                raise UserError(f"there is no directory {path!r}")
            directory, steps = list_saved(found, kind)
            if which.isdecimal() and int(which) not in steps:
                has = ", ".join(map(str, steps))
                raise UserError(f"{str(directory)!r} has no checkpoint {which!r}; it has {has}")

    found = Path(os.path.expanduser(path))
    if path:
        yield Need(check, found)


def is_release(directory: Path) -> bool:
    """Whether a directory has a release's file of arrays."""
    return any(os.path.isfile(file_of(directory, kind)) for kind in RELEASED)  # False for names that are too long


def file_of(directory: Path, kind: str) -> Path:
    """The file with the arrays of a "policy" or a "reward"."""
    return directory / f"{kind}.safetensors"


def read_metadata(directory: Path) -> Metadata:
    """The content of config.json; raises UserError if it or the card is damaged."""
    with _reading(directory, METADATA):
        metadata = parse_foreign_json(read_bytes(directory / METADATA, LIMIT))
        if metadata.pop(CHECKSUM, None) != _checksum(metadata):
            raise ValueError("its checksum is missing or differs: it is not what was written there")
        if metadata.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}, which this version reads")
    read_checked(directory, CARD, metadata, LIMIT)
    return metadata


def checksum_of(metadata: Metadata) -> str:
    """The SHA-256 of metadata of JSON's types, independent of spaces and of the order of keys."""
    return hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()


def _checksum(metadata: Metadata) -> str:
    return f"sha256:{checksum_of(metadata)[:16]}"


def read_checked(directory: Path, name: str, metadata: Metadata, limit: int = LARGEST) -> bytes:
    """The bytes of one file of a release; raises UserError if their SHA-256 differs from the one in `metadata`."""
    with _reading(directory, name):
        data = read_bytes(directory / name, limit)
        if hashlib.sha256(data).hexdigest() != metadata["files"].get(name):
            raise ValueError(f"its checksum is not the one in {METADATA}")
        return data


def released_replay(directory: Path) -> Path | None:
    """The replay of a release's best episode; None if the directory does not have one."""
    if not is_release(directory) or not (directory / REPLAY).is_file():
        return None
    read_checked(directory, REPLAY, read_metadata(directory))
    return directory / REPLAY


def read_release(directory: Path, kind: str, which: str) -> tuple[int, Any, Metadata]:
    """Reads a "policy" or a "reward" as `Checkpoints.readable` does: step, arrays in dictionaries, and metadata."""
    metadata = read_metadata(directory)
    entry = _of_kind(directory, metadata, kind)
    step = entry["step"]
    if which not in ("last", "best", str(step)):
        raise UserError(f"{str(directory)!r} has no checkpoint {which}; it has {step}")
    tree = _read_tree(directory, kind, metadata)
    if kind == "reward":
        arrays = {name: tree.get(name, np.zeros(0)) for name in ("captions", "counts")}
        return step, {"train": {"params": tree.get("params", {})}, **arrays}, entry["facts"]
    sources = dict(tree.get("sources", {}))
    if "learnt" in entry["facts"]["sources"]:
        sources["learnt"] = _read_tree(directory, "reward", metadata)
    saved = {"learner": {"params": tree.get("params", {})}, "frozen": tree.get("frozen", {}), "sources": sources}
    return step, saved, entry["facts"]


def _of_kind(directory: Path, metadata: Metadata, kind: str) -> Metadata:
    """Step and metadata of a policy or a reward. Who reads more of the metadata does so within `usable`."""
    if kind not in metadata:
        raise UserError(f"the release in {str(directory)!r} has no {kind}")
    with _reading(directory, METADATA):
        entry: Metadata = _numbers(metadata[kind])
        facts = entry["facts"]
        parts = [facts, facts["config"]["env"], facts["sources"]] if kind == "policy" else [facts]
        if not (isinstance(entry["step"], int) and all(isinstance(part, dict) for part in parts)):  # it names a folder
            raise ValueError(f"it lacks what a {kind} needs")
        return entry


def _read_tree(directory: Path, kind: str, metadata: Metadata) -> dict[str, Any]:
    """The arrays of a file as nested dictionaries: "params.core.kernel" is tree["params"]["core"]["kernel"]."""
    name = file_of(directory, kind).name
    data = read_checked(directory, name, metadata)
    tree: dict[str, Any] = {}
    with _reading(directory, name):
        for path, array in safetensors.numpy.load(data).items():
            *folders, last = path.split(".")
            inner = tree
            for folder in folders:
                inner = inner.setdefault(folder, {})  # an AttributeError within a tensor
            if last in inner:
                raise ValueError(f"{path!r:.80} holds other tensors")
            inner[last] = array
    return tree


def write_release(
    directory: Path, arrays: Mapping[str, Mapping[tuple[str, ...], Any]], metadata: Metadata, card: str,
    replay: bytes | None,
) -> None:  # fmt: skip
    """Writes a release, config.json last; replaces an older one in the directory, if its files are unchanged.

    `arrays`: of a "policy", a "reward" or both, by their paths (`parameters.leaves_by_path`). `metadata`: for
    config.json; `files` and `format` are added.
    """
    files = {CARD: card.encode()}
    for kind, tree in arrays.items():
        tensors = {".".join(path): np.asarray(array, order="C") for path, array in tree.items()}
        files[file_of(directory, kind).name] = safetensors.numpy.save(tensors, {"format": f"{PREFIX} {FORMAT}"})
    if replay is not None:
        files[REPLAY] = replay
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    names = (CARD, REPLAY, *(file_of(directory, kind).name for kind in RELEASED))
    _check_own(directory, names, digests)
    for old in set(names) - files.keys():
        (directory / old).unlink(missing_ok=True)
    for name, data in files.items():
        write_whole(directory / name, data)
    metadata = to_plain({**metadata, "format": FORMAT, "files": digests})
    write_json(directory / METADATA, metadata | {CHECKSUM: _checksum(metadata)})


def _check_own(directory: Path, names: Iterable[str], digests: Mapping[str, str]) -> None:
    """Raises UserError if a file that would be replaced was changed since this program wrote it.

    Its SHA-256 must be the one in the directory's config.json or, after it was killed, one of `digests`.
    """
    before: Metadata = {}
    with contextlib.suppress(OSError, ValueError):
        before = read_json(directory / METADATA).get("files") or {}
    for name in filter(lambda name: os.path.lexists(directory / name), (METADATA, *names)):
        with _reading(directory, name):
            own = before if name == METADATA else sha256_of(directory / name) in (before.get(name), digests.get(name))
        if not own:
            raise UserError(
                f"{str(directory / name)!r} would be replaced, but was changed since this program wrote it: name "
                "another directory, or move this one away if the program was killed while it wrote"
            )


@contextlib.contextmanager
def usable(directory: Path) -> Iterator[None]:
    """A context for code that uses the metadata of a release: an error becomes a UserError that names the release."""
    try:
        yield
    except UserCodeError:
        raise
    except UserError as error:
        if not is_release(directory) or str(directory) in str(error):
            raise
        raise UserError(f"the release in {str(directory)!r} cannot be used: {error}") from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if not is_release(directory):
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise UserError(
            f"the release in {str(directory)!r} has metadata that this version cannot use ({reason})"
        ) from error


def _reading(directory: Path, name: str) -> contextlib.AbstractContextManager[None]:
    what = f"{name!r} of the release in {str(directory)!r}"
    kinds = LookupError, TypeError, AttributeError, RecursionError, safetensors.SafetensorError
    return legible(what, "", *kinds)


def _numbers(tree: Any) -> Any:
    """Metadata, with infinite numbers in place of the texts that `to_plain` wrote for them."""
    if isinstance(tree, dict):
        return {name: _numbers(item) for name, item in tree.items()}
    if isinstance(tree, list):
        return [_numbers(item) for item in tree]
    return float(tree) if tree in ("inf", "-inf") else tree
