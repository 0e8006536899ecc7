"""A dataset of pairs: opened and checked, made by this program or the published one, and written by this program.

data/message.npy [N, 2, L, 256] uint8      data/blstats.npy [N, 2, L, 27] integers     data/rewards.npy [N, 2, L]
data/tty_chars.npy, tty_colors.npy [N, 2, L, 24, 80]   data/glyphs.npy [N, 2, L, 21, 79]   (optional)
info/score.npy, turns.npy, experience_level.npy, character.npy, ... [N, 2]             (optional)
preference/<name>.npy [N] int8: 0 first, 1 second, 2 tie, 3 unknown
index/captions.npy [U, 256], counts.npy [U], caption_id.npy [N, 2, L] int32            (made if missing)

Files with other names are not opened, such as info/path.npy of the published dataset, which contains text. Everything
about an annotation except its labels is in <workdir>/annotations/<name>/, because the published loader reads all files
in preference/ as arrays.
"""

from __future__ import annotations

import enum
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.captions import WIDTH, CaptionTable
from motif_jax.files import map_array, read_json, remove_folder, write_array, write_json
from motif_jax.structs import ArraySpec, EpisodeInfo, UserError
from motif_jax.system.foreign import leads_out
from motif_jax.system.machine import read_array

FLAG = "--config.collect.dataset"
CHUNK_BYTES = 64 * 2**20
ROWS = 65_536  # read at once

# Trailing axes and allowed kinds (np.dtype.kind) of the arrays, by name.
DATA = {
    "rewards": ((), "iuf"),
    "message": ((WIDTH,), "u"),
    "blstats": ((27,), "iu"),
    "tty_chars": ((24, 80), "u"),
    "tty_colors": ((24, 80), "iu"),
    "glyphs": ((21, 79), "iu"),
}
INFO = dict.fromkeys(("score", "turns", "experience_level", "max_depth", "steps", "episode", "start"), "iufb")
INFO["character"] = "US"
NAME = r"[A-Za-z0-9_-]+"  # of an annotation


class Preference(enum.IntEnum):
    """The codes of labels: the better moment of a pair."""

    FIRST = 0
    SECOND = 1
    TIE = 2
    UNKNOWN = 3


class PairDataset:
    """A directory of pairs; its arrays are memory-mapped."""

    def __init__(self, path: str | Path, follow_links: bool = True):
        """`follow_links`: its arrays may be links out of it, as in a workdir whose dataset was collected elsewhere."""
        self.path, self._follow_links = Path(path), follow_links
        self.data = self._open_all("data", DATA)  # [N, 2, L, ...]
        self.info = self._open_all("info", INFO)  # [N, 2]
        first = self.data.get("message", np.zeros(0))
        self.num_pairs, _, self.length = first.shape[:3] if first.ndim >= 3 else (0, 0, 0)
        if not self.num_pairs or not self.length:
            raise UserError(f"dataset {str(self.path)!r} has no data/message.npy with pairs ({FLAG})")
        for key, array in self.data.items():
            tail, kinds = DATA[key]
            self._check(f"data/{key}.npy", array, (self.num_pairs, 2, self.length, *tail), kinds)
        for key, array in self.info.items():
            self._check(f"info/{key}.npy", array, (self.num_pairs, 2), INFO[key])

    def __len__(self) -> int:
        return self.num_pairs

    def preference_names(self) -> list[str]:
        return sorted(
            file.stem for file in self.path.glob("preference/*.npy") if re.fullmatch(NAME, file.stem) and file.is_file()
        )

    def preference(self, name: str) -> np.ndarray:
        """One annotation. [N] int8 of `Preference`"""
        if name not in self.preference_names():
            names = ", ".join(self.preference_names()) or "none"
            raise UserError(f"dataset {str(self.path)!r} has no annotation {name!r}; it has {names} ({FLAG})")
        array = self._open(f"preference/{name}.npy")
        self._check(f"preference/{name}.npy", array, (self.num_pairs,), "i")
        if array.dtype != np.int8 or not 0 <= array.min() <= array.max() <= Preference.UNKNOWN:
            path = str(labels_file(self.path, name))
            raise UserError(f"{path!r} must hold int8 codes 0 to 3, not {array.dtype} ({FLAG})")
        return array

    def captions(self) -> tuple[CaptionTable, np.ndarray]:
        """The caption table and the caption of every step ([N, 2, L] int32), made if missing or stale."""
        index = self.path / "index"
        status = (self.path / "data" / "message.npy").stat()
        stamp = {"bytes": status.st_size, "modified_ns": status.st_mtime_ns}
        made_of = index / "source.json"  # written last
        if made_of.exists() and read_json(made_of) == stamp:
            return CaptionTable.load(index), np.load(index / "caption_id.npy", mmap_mode="r")
        table = CaptionTable()
        messages = self.data["message"]
        ids = np.empty(messages.shape[:-1], np.int32)
        rows = max(1, CHUNK_BYTES // (2 * self.length * 256))
        for start in range(0, self.num_pairs, rows):
            ids[start : start + rows] = table.intern(messages[start : start + rows])
        table.save(index)
        write_array(index / "caption_id.npy", ids)
        write_json(made_of, stamp)
        return table, ids

    def _open_all(self, folder: str, names: Iterable[str]) -> dict[str, np.ndarray]:
        existing = [name for name in names if os.path.lexists(self.path / folder / f"{name}.npy")]
        return {name: self._open(f"{folder}/{name}.npy") for name in existing}

    def _open(self, name: str) -> np.ndarray:
        file = self.path / name
        if not self._follow_links and leads_out(file, self.path):
            raise UserError(
                f"{name} of dataset {str(self.path)!r} is a link that leads out of it, to {os.path.realpath(file)!r}: "
                "put the file itself there, or give --config.collect.follow_links=True if you know what it is"
            )
        try:
            return read_array(file, mapped=True)
        except (ValueError, OSError) as error:  # not an array, truncated, with Python objects, unreadable
            reason = error.strerror if isinstance(error, OSError) else error
            raise UserError(f"cannot read {str(file)!r} ({FLAG}): {reason}") from error

    def _check(self, name: str, array: np.ndarray, shape: tuple[int, ...], kinds: str) -> None:
        wrong_type = array.dtype.kind not in kinds or (kinds == "u" and array.dtype != np.uint8)
        if array.shape != shape or wrong_type:
            has = f"has the wrong type {array.dtype}" if wrong_type else f"has shape {array.shape}, not {shape}"
            raise UserError(f"{name} of dataset {str(self.path)!r} {has} ({FLAG})")


def labels_file(dataset: Path, name: str) -> Path:
    """The labels of an annotation of the dataset in this directory: int8 [N] codes of `Preference`."""
    return dataset / "preference" / f"{name}.npy"


def annotation_folder(dataset: Path, name: str) -> Path:
    """The folder of an annotation's shards, probabilities and records (shards.py)."""
    return dataset.parent / "annotations" / name


def digest_of(array: np.ndarray) -> str:
    """A hash of an array, which is read in parts."""
    digest = hashlib.sha256()
    for start in range(0, len(array), ROWS):
        digest.update(np.ascontiguousarray(array[start : start + ROWS]).tobytes())
    return digest.hexdigest()


def fingerprint(dataset: PairDataset) -> str:
    """A hash that identifies a dataset by its messages."""
    table, ids = dataset.captions()
    digest = hashlib.sha256(table.messages.tobytes())
    digest.update(np.ascontiguousarray(ids).tobytes())
    return digest.hexdigest()


# ---- writing
#
# Episodes are cut into stretches of L steps (moments), and these are paired. An episode of n steps gives n // L
# stretches, whose starts are drawn without replacement. Their shuffle is drawn before any game is played: stretch i
# goes to place `places[i]`, a random permutation of all 2N places. So moments can be written as soon as they are
# played, and memory stays small. The dataset depends on the seed alone: not on workers, speed or interruptions.
#
# Arrays grow in `<dataset>.partial/`, beside `progress.json` with the number of final places. A resumed run writes
# later places again, with the same content. When all places are filled the directory gets its index and `dataset.json`
# and, last, its final name.

FIGURES = ("score", "turns", "experience_level", "max_depth")  # stored per episode, if the world has them
PROGRESS = "progress.json"  # until the dataset is finished
SPARE_BYTES = 64 * 2**20  # left free on the disk
PLACES_STREAM, STARTS_STREAM = 0, 1


class FinishedEpisode(NamedTuple):
    """One finished episode: its summary, and the data of each step after its action."""

    info: EpisodeInfo
    steps: dict[str, np.ndarray]  # [n, ...] each; includes "message"


def stretch_starts(episode: FinishedEpisode, length: int, seed: int, keep_empty: float) -> np.ndarray:
    """The first steps of the kept stretches, in random order [k]; `keep_empty`: the share of those without messages."""
    steps = len(episode.steps["message"])
    if steps < length:
        return np.zeros(0, np.int64)
    rng = np.random.default_rng((seed, STARTS_STREAM, episode.info.episode))
    starts = rng.permutation(steps - length + 1)[: steps // length]
    if keep_empty < 1:
        silent = np.asarray(~episode.steps["message"].any(-1))  # [n]
        empty = cut(silent, starts, length).all(1)  # [k]
        starts = starts[~empty | (rng.random(len(starts)) < keep_empty)]
    return starts


def cut(array: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Cuts stretches out of an array over time. [n, ...] -> [k, L, ...]"""
    return array[starts[:, None] + np.arange(length)]


class PairWriter:
    """Writes a dataset: give it episodes in order until it is `full`, then `finish` it."""

    def __init__(
        self, path: Path, *, num_pairs: int, length: int, specs: Mapping[str, ArraySpec],
        figures: Mapping[str, type], seed: int, keep_empty: float, character: str = "",
    ):  # fmt: skip
        """Creates the files, or resumes with those of an earlier run.

        `path`: of the finished dataset. `num_pairs`, `length`: N and L. `specs`: of one step's data arrays. `figures`:
        the world's figures of an episode, with their types; those in FIGURES are stored. `keep_empty`: see
        `stretch_starts`. `character`: NetHack's name of the played character; "" in other worlds.
        """
        self.path, self.partial = path, path.with_name(path.name + ".partial")
        self._length, self._seed, self._keep_empty = length, seed, keep_empty
        self._num_pairs, self._figures, self._character = num_pairs, tuple(figures), character
        kinds = {name: kind for name, kind in figures.items() if name in FIGURES} | {"steps": int, "episode": int}
        arrays = {f"data/{key}": ((length, *spec.shape), spec.dtype) for key, spec in specs.items()}
        arrays |= {f"info/{key}": ((), "float64" if kind is float else "int64") for key, kind in kinds.items()}
        arrays |= {"info/start": ((), "int32")} | ({"info/character": ((), "<U16")} if character else {})
        all_specs = {name: ArraySpec((num_pairs, 2, *shape), dtype) for name, (shape, dtype) in arrays.items()}
        file = self.partial / PROGRESS  # written with the first moments
        if file.exists():
            self.progress: dict[str, Any] = read_json(file)
            self._arrays = {name: map_array(self.partial / f"{name}.npy") for name in all_specs}
        else:  # no moment is final; existing files may even come from another config
            self.progress = {"moments": 0, "next_episode": 0, "steps": 0, "given_up": []}
            self._arrays = self._make(all_specs)
        # Stretch i goes to side p % 2 of pair p // 2, p = places[i]. [2N] int64
        self._places = np.random.default_rng((seed, PLACES_STREAM)).permutation(2 * num_pairs)

    @property
    def moments(self) -> int:
        """The number of stretches written so far; 2N in the end."""
        return self.progress["moments"]

    @property
    def full(self) -> bool:
        return self.moments >= len(self._places)

    def add(self, episode: FinishedEpisode) -> None:
        """Writes the stretches of the next episode, as far as there are places."""
        starts = stretch_starts(episode, self._length, self._seed, self._keep_empty)
        spots = self._places[self.moments : self.moments + len(starts)]
        starts = starts[: len(spots)]
        info = episode.info.named(self._figures) | {"start": starts, "character": self._character}
        for name, array in self._arrays.items():
            folder, key = name.split("/")
            values = cut(episode.steps[key], starts, self._length) if folder == "data" else info[key]
            array.reshape(-1, *array.shape[2:])[spots] = values
        self.progress = self.progress | {  # all at once: a signal may end the program at any moment
            "moments": self.moments + len(starts),
            "steps": self.progress["steps"] + episode.info.steps,
            "next_episode": episode.info.episode + 1,
        }

    def skip(self, episode: int) -> None:
        """Records that this episode is left out, because it crashed every worker that played it."""
        self.progress["given_up"].append(episode)
        self.progress["next_episode"] = episode + 1

    def commit(self) -> None:
        """Flushes everything added so far to disk, and records the progress."""
        if not self.moments:
            return
        for array in self._arrays.values():
            array.flush()  # type: ignore[attr-defined]  # they are mapped
        write_json(self.partial / PROGRESS, self.progress)

    def finish(self, metadata: dict[str, Any], run: dict[str, Any]) -> PairDataset:
        """Completes the dataset and gives it its name. `metadata`, `run`: for `dataset.json` and `run.json`."""
        assert self.full
        self.commit()
        if not (self.partial / "run.json").exists():
            write_json(self.partial / "run.json", run)
        table, ids = PairDataset(self.partial).captions()
        empty = table.counts[~table.messages.any(-1)].sum()
        figures = {
            "num_pairs": self._num_pairs,
            "segment_length": self._length,
            "episodes": self.progress["next_episode"],
            "steps": self.progress["steps"],
            "episodes_given_up": self.progress["given_up"],
            "distinct_captions": len(table),
            "share_without_message": round(float(empty / ids.size), 6),
        }
        write_json(self.partial / "dataset.json", metadata | figures)
        self._arrays = {}
        os.replace(self.partial, self.path)
        (self.path / PROGRESS).unlink()
        return PairDataset(self.path)

    def _make(self, specs: Mapping[str, ArraySpec]) -> dict[str, np.ndarray]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        remove_folder(self.partial)
        needed, free = sum(spec.nbytes for spec in specs.values()), shutil.disk_usage(self.path.parent).free
        if needed + SPARE_BYTES > free:
            raise UserError(
                f"{self._num_pairs:,} pairs need {needed / 2**20:,.0f} MiB, but {str(self.path.parent)!r} has "
                f"{free / 2**20:,.0f} MiB left (--config.collect.num_pairs, --workdir)"
            )
        arrays: dict[str, np.ndarray] = {}
        for name, spec in specs.items():
            file = self.partial / f"{name}.npy"
            file.parent.mkdir(parents=True, exist_ok=True)
            arrays[name] = np.lib.format.open_memmap(file, "w+", np.dtype(spec.dtype), spec.shape)
            with open(file, "r+b") as handle:
                os.posix_fallocate(handle.fileno(), 0, file.stat().st_size)  # raises now if the disk is full, not later
        return arrays
