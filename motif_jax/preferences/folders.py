"""The paths of an annotation's files: labels lie where the published system has them, the rest in a separate folder.

    <workdir>/dataset/preference/<name>.npy    int8 [N] codes of `Preference`, as published
    <workdir>/annotations/<name>/              shards, probabilities and records: `shards.py`, `merging.py`

The published loader reads everything in `preference/` as an array, and fails at a directory.
"""

from __future__ import annotations

from pathlib import Path


def labels_file(dataset: Path, name: str) -> Path:
    """The labels of an annotation of the dataset in this directory."""
    return dataset / "preference" / f"{name}.npy"


def annotation_folder(dataset: Path, name: str) -> Path:
    """The folder of shards, probabilities and records."""
    return dataset.parent / "annotations" / name
