"""How the published code reads a dataset of pairs, re-told from facts about it, to see whether it can read ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

UNKNOWN = 3


def load_published(
    directory: Path, data: Sequence[str] = ("message",), info: Sequence[str] = (), preference: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """The arrays of these names, without the rows that are unknown in one of the annotations.

    Everything that lies in `preference/` is opened as an array, under its name up to the first dot; of the other
    folders, what is asked for.
    """
    found = {}
    for folder, wanted in (("data", data), ("info", info), ("preference", preference)):
        there = [(path.name.split(".")[0], path) for path in sorted((directory / folder).glob("*"))]
        opened = [(key, path) for key, path in there if folder == "preference" or key in wanted]
        arrays = {key: np.load(path, mmap_mode="r") for key, path in opened}
        for key in wanted:
            if key not in arrays:
                raise ValueError(f"there is no {folder}/{key}")
            found[key] = arrays[key]
    known = np.all([np.ones(len(next(iter(found.values()))), bool), *(found[key] != UNKNOWN for key in preference)], 0)
    return {key: array[known] for key, array in found.items()}
