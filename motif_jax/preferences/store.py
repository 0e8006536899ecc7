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
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.captions import WIDTH, CaptionTable
from motif_jax.files import read_json, write_array, write_arrays, write_json
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
# goes to place `places[i]`, a random permutation of all 2N places. The dataset depends on the seed alone: not on
# workers, speed or interruptions.
#
# During play, `<dataset>.pieces/` gets whole files: the stretches of consecutive episodes, and the progress after them.
# A resumed run plays what comes after the last one. At the end all pieces are put together. They are compressed, to
# about a tenth in NetHack: that is what collecting needs of the disk beside the dataset itself.

FIGURES = ("score", "turns", "experience_level", "max_depth")  # stored per episode, if the world has them
FIRST_PIECE = f"{0:012}.npz"  # pieces are named after the number of their first stretch
PIECE_BYTES = 64 * 2**20  # of stretches that are kept in memory
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
    """Makes a dataset: give it episodes in order until it is `full`, then `assemble` it."""

    def __init__(
        self, pieces: Path, *, num_pairs: int, length: int, specs: Mapping[str, ArraySpec],
        figures: Mapping[str, type], seed: int, keep_empty: float, character: str = "",
    ):  # fmt: skip
        """Goes on after the pieces of an earlier run.

        `pieces`: their directory. `num_pairs`, `length`: N and L. `specs`: of one step's data arrays. `figures`:
        the world's figures of an episode, with their types; those in FIGURES are stored. `keep_empty`: see
        `stretch_starts`. `character`: NetHack's name of the played character; "" in other worlds.
        """
        self._folder, self._num_pairs, self._length, self._seed = pieces, num_pairs, length, seed
        self._keep_empty, self._figures, self._character = keep_empty, tuple(figures), character
        kinds = {name: kind for name, kind in figures.items() if name in FIGURES} | {"steps": int, "episode": int}
        self._specs = {f"data/{key}": ArraySpec((length, *spec.shape), spec.dtype) for key, spec in specs.items()}
        kept = {key: "float64" if kind is float else "int64" for key, kind in kinds.items()} | {"start": "int32"}
        kept |= {"character": "<U16"} if character else {}
        self._specs |= {f"info/{key}": ArraySpec((), kind) for key, kind in kept.items()}
        self._bytes = sum(spec.nbytes for spec in self._specs.values())  # of a stretch
        self._waiting: list[dict[str, np.ndarray]] = []  # the stretches of the next piece. [k, ...] each
        self.progress: dict[str, Any] = {"moments": 0, "next_episode": 0, "steps": 0, "given_up": [], "seconds": 0.0}
        for file in self._pieces()[-1:]:
            with np.load(file) as piece:
                self.progress = json.loads(piece["progress"].tobytes())
        self._committed = self.moments
        pieces.parent.mkdir(parents=True, exist_ok=True)
        needed, free = 2 * num_pairs * self._bytes, shutil.disk_usage(pieces.parent).free
        if needed + SPARE_BYTES > free:
            raise UserError(
                f"{num_pairs:,} pairs need {needed / 2**20:,.0f} MiB, but {str(pieces.parent)!r} has "
                f"{free / 2**20:,.0f} MiB left (--config.collect.num_pairs, --workdir)"
            )

    @property
    def moments(self) -> int:
        """The number of stretches so far; 2N in the end."""
        return self.progress["moments"]

    @property
    def full(self) -> bool:
        return self.moments >= 2 * self._num_pairs

    @property
    def is_large(self) -> bool:
        """Whether so many stretches wait in memory that they should be committed."""
        return (self.moments - self._committed) * self._bytes > PIECE_BYTES

    def add(self, episode: FinishedEpisode) -> None:
        """Takes the stretches of the next episode, as far as there are places."""
        starts = stretch_starts(episode, self._length, self._seed, self._keep_empty)
        starts = starts[: 2 * self._num_pairs - self.moments]
        info = episode.info.named(self._figures) | {"start": starts, "character": self._character}
        stretches = {}
        for name, spec in self._specs.items():
            folder, key = name.split("/")
            stretches[name] = np.empty((len(starts), *spec.shape), spec.dtype)
            stretches[name][:] = cut(episode.steps[key], starts, self._length) if folder == "data" else info[key]
        self._waiting.append(stretches)
        self.progress = self.progress | {  # all at once: a signal may end the program at any moment
            "moments": self.moments + len(starts),
            "steps": self.progress["steps"] + episode.info.steps,
            "next_episode": episode.info.episode + 1,
        }

    def skip(self, episode: int) -> None:
        """Records that this episode is left out, because it crashed every worker that played it."""
        given_up = [*self.progress["given_up"], episode]
        self.progress = self.progress | {"given_up": given_up, "next_episode": episode + 1}

    def commit(self) -> None:
        """Writes the stretches that were added since the last piece, and the progress, as a piece."""
        if count := self.moments - self._committed:  # a signal may have come before the last episode was counted
            arrays = {name: np.concatenate([one[name] for one in self._waiting])[:count] for name in self._specs}
            progress = np.frombuffer(json.dumps(self.progress).encode(), np.uint8)
            write_arrays(self._folder / f"{self._committed:012}.npz", arrays | {"progress": progress})
        self._committed, self._waiting = self.moments, []

    def assemble(self, target: Path, metadata: dict[str, Any], run: dict[str, Any]) -> None:
        """Makes the dataset in an empty directory. `metadata`, `run`: for `dataset.json` and `run.json`."""
        assert self.full
        self.commit()
        # Stretch i goes to side p % 2 of pair p // 2, p = places[i]. [2N] int64
        places = np.random.default_rng((self._seed, PLACES_STREAM)).permutation(2 * self._num_pairs)
        arrays = {name: self._make(target / f"{name}.npy", spec) for name, spec in self._specs.items()}
        for file in self._pieces():
            with np.load(file) as piece:
                spots = places[int(file.stem) :][: len(piece["info/start"])]
                for name, array in arrays.items():
                    array.reshape(-1, *array.shape[2:])[spots] = piece[name]
        for array in arrays.values():
            array.flush()
        table, ids = PairDataset(target).captions()
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
        write_json(target / "run.json", run)
        write_json(target / "dataset.json", metadata | figures)

    def _pieces(self) -> list[Path]:
        return sorted(self._folder.glob("*.npz"))

    def _make(self, file: Path, spec: ArraySpec) -> np.memmap:
        """The array of all stretches with this form, mapped for writing. [N, 2, ...]"""
        file.parent.mkdir(parents=True, exist_ok=True)
        array = np.lib.format.open_memmap(file, "w+", np.dtype(spec.dtype), (self._num_pairs, 2, *spec.shape))
        with open(file, "r+b") as handle:
            os.posix_fallocate(handle.fileno(), 0, file.stat().st_size)  # raises now if the disk is full, not later
        return array
