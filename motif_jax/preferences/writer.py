"""Cuts episodes into stretches of L steps (moments), pairs them, and writes a dataset of pairs.

An episode of n steps gives n // L stretches, whose starts are drawn without replacement. All stretches of all episodes
are shuffled, and consecutive ones are paired. The shuffle is drawn before any game is played: stretch i goes to place
`places[i]`, where `places` is a random permutation of all 2N places. So moments can be written as soon as they are
played, and memory stays small. The dataset depends on the seed alone: not on the number of workers, their speed, or
interruptions.

Arrays grow in `<dataset>.partial/`, beside `progress.json` with the number of final places. A resumed run writes later
places again, with the same content. When all places are filled the directory gets its index and `dataset.json` and,
last, its final name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.files import map_array, read_json, remove_folder, write_json
from motif_jax.preferences.store import PairDataset
from motif_jax.structs import ArraySpec, EpisodeInfo, UserError

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

        Args:
          path: the finished dataset's path.
          num_pairs, length: N and L.
          specs: the data arrays of one step, by name.
          figures: the world's figures of an episode, with their types; those in FIGURES are stored.
          seed, keep_empty: see `stretch_starts`.
          character: NetHack's name of the played character; "" in other worlds.
        """
        self.path, self.partial = path, path.with_name(path.name + ".partial")
        self._length, self._keys, self._seed, self._keep_empty = length, tuple(specs), seed, keep_empty
        self._num_pairs, self._figures, self._character = num_pairs, tuple(figures), character
        kinds = {name: kind for name, kind in figures.items() if name in FIGURES} | {"steps": int, "episode": int}
        self._info = tuple(kinds)
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
        for key in self._keys:
            array = self._arrays[f"data/{key}"]
            array.reshape(-1, *array.shape[2:])[spots] = cut(episode.steps[key], starts, self._length)
        values = episode.info.named(self._figures)
        for key in self._info:
            self._arrays[f"info/{key}"].reshape(-1)[spots] = values[key]
        self._arrays["info/start"].reshape(-1)[spots] = starts
        if self._character:
            self._arrays["info/character"].reshape(-1)[spots] = self._character
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
        """Flushes everything added so far to disk, and records the progress; without moments it does nothing."""
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
