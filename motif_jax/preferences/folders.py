"""The paths of an annotation's files.

    <workdir>/dataset/preference/<name>.npy    int8 [N] codes of `Preference`, where the published system has them
    <workdir>/annotations/<name>/              shards, probabilities and records: `shards.py`, `merging.py`

The two are separate because the published loader reads everything in `preference/` as an array.
"""

from __future__ import annotations

from pathlib import Path


def labels_file(dataset: Path, name: str) -> Path:
    """The labels of an annotation of the dataset in this directory."""
    return dataset / "preference" / f"{name}.npy"


def annotation_folder(dataset: Path, name: str) -> Path:
    """The folder of shards, probabilities and records."""
    return dataset.parent / "annotations" / name
