"""Opens and checks a dataset of pairs, made by this program or the published one; the paths of its annotations.

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
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from motif_jax.captions import WIDTH, CaptionTable
from motif_jax.files import read_json, write_array, write_json
from motif_jax.structs import UserError
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
        """Opens and checks `path`.

        `follow_links`: whether its arrays may be links that lead out of the directory, as in a workdir whose dataset
        was collected elsewhere.
        """
        self.path, self._follow_links = Path(path), follow_links
        if not self.path.is_dir():
            raise UserError(f"there is no dataset directory {str(self.path)!r} ({FLAG})")
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
