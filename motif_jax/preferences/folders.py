"""The paths of an annotation's files: labels lie where the published system has them, the rest in a separate folder.

    <workdir>/dataset/preference/<name>.npy    int8 [N] codes of `Preference`, as published
    <workdir>/annotations/<name>/              shards, probabilities and records: `shards.py`, `merging.py`

The published loader reads everything in `preference/` as an array, and fails at a directory. Earlier versions of this
program made such directories, `dataset/preference/<name>/`: they are read, and continued, in place.
"""

from __future__ import annotations

from pathlib import Path


def labels_file(dataset: Path, name: str) -> Path:
    """The labels of an annotation of the dataset in this directory."""
    return dataset / "preference" / f"{name}.npy"


def annotation_folder(dataset: Path, name: str) -> Path:
    """The folder of shards, probabilities and records: the old place if only that one exists, else the new one."""
    old, new = _places(dataset, name)
    return old if old.is_dir() and not new.is_dir() else new


def moving_hint(dataset: Path, name: str) -> str:
    """A sentence on how to move an annotation that is in the old place; "" if it is in the new one."""
    old, new = _places(dataset, name)
    if annotation_folder(dataset, name) == new:
        return ""
    return (
        f"the shards of {name} are in {str(old)!r}, where earlier versions put them and the published loader fails at "
        f"them; to move them: mv {str(old)!r} {str(new)!r}"
    )


def _places(dataset: Path, name: str) -> tuple[Path, Path]:
    return dataset / "preference" / name, dataset.parent / "annotations" / name
