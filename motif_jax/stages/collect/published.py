"""Takes an existing dataset into the workdir: links to its arrays, copies of its annotations, and an index.

The dataset is not trusted. Only files with known names are opened, links that lead out of its directory are followed
only if the user allows it, and only checked arrays and small records are copied.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.console import clean, print_line
from motif_jax.files import make_anew, write_array, write_json, write_whole
from motif_jax.preferences.folders import annotation_folder, labels_file
from motif_jax.preferences.store import DATA, FLAG, INFO, PairDataset, Preference
from motif_jax.structs import UserError
from motif_jax.system.arrays import read_array
from motif_jax.system.foreign import LIMIT, leads_out, parse_foreign_json, read_bytes

NAMED = 5  # files in the line about those that are not read
RECORDS = re.compile(r"merged\.json|prob\.npy|config\.json|shard-\d+-of-\d+(\.npy|\.prob\.npy|\.json)")
HEAD_BYTES = 4096  # most bytes before the data of a .npy file


def adopt(source: Path, follow_links: bool, target: Path) -> None:
    """Makes a dataset in the directory `target` from `source`; `follow_links`: also from files outside `source`."""
    dataset = PairDataset(source, follow_links=follow_links)
    labels = {name: dataset.preference(name) for name in dataset.preference_names()}
    records = {name: annotation_folder(source, name) for name in labels if _is_ours(source, name)}
    for name in labels:
        _check_free(annotation_folder(target, name), records.get(name))

    make_anew(target)
    for kind, arrays in (("data", dataset.data), ("info", dataset.info)):
        (target / kind).mkdir()
        for key in arrays:
            (target / kind / f"{key}.npy").symlink_to((source / kind / f"{key}.npy").resolve())
    table, _ = PairDataset(target).captions()
    for name, codes in labels.items():
        write_array(labels_file(target, name), codes)
    for name, folder in records.items():
        _copy_records(folder, annotation_folder(target, name), len(dataset))
    metadata: dict[str, Any] = {"source": str(source.resolve()), "num_pairs": len(dataset)}
    metadata |= {"segment_length": dataset.length, "distinct_captions": len(table)}
    write_json(target / "dataset.json", metadata)
    if left := sorted(_not_read(source, dataset)):
        others = f" and {len(left) - NAMED:,} more" if len(left) > NAMED else ""
        print_line(
            f"collect: not read in {clean(source)}: {', '.join(clean(name, 80) for name in left[:NAMED])}{others}"
        )


def _not_read(source: Path, dataset: PairDataset) -> Iterator[str]:
    """Names of the files and directories beside the arrays that are not read."""
    read = {"data": set(DATA), "info": set(INFO), "preference": set(dataset.preference_names())}
    for folder, keys in read.items():
        try:
            names = os.listdir(source / folder)
        except FileNotFoundError:
            continue
        except OSError:  # not a directory, or not readable
            yield folder
            continue
        for name in names:
            ours = folder == "preference" and name in keys and _is_ours(source, name)
            if not ours and (not name.endswith(".npy") or name.removesuffix(".npy") not in keys):
                yield f"{folder}/{name}"


def _is_ours(source: Path, name: str) -> bool:
    """Whether this program made the annotation, so that it has records beside its labels."""
    folder = annotation_folder(source, name)
    outside = leads_out(folder, source.parent)
    return not outside and (source / "dataset.json").is_file() and (folder / "merged.json").is_file()


def _check_free(target: Path, folder: Path | None) -> None:
    """Raises UserError if the workdir has an annotation of the same name from an earlier dataset.

    `target` and `folder`: its directories in the workdir and in the source.
    """
    if not target.is_dir():
        return
    record = target / "merged.json"
    if folder and record.is_file() and _read(record, LIMIT) == _read(folder / "merged.json", LIMIT):
        return  # an earlier run of the same command was killed
    raise UserError(
        f"{str(target)!r} belongs to an annotation of another dataset, and the dataset to use has one of the same "
        f"name: move it away, or choose another --workdir ({FLAG})"
    )


def _copy_records(folder: Path, target: Path, num_pairs: int) -> None:
    """Checks and copies the files of an annotation, first `merged.json`, which identifies the annotation."""
    for file in sorted(folder.iterdir(), key=lambda file: file.name != "merged.json"):
        if not RECORDS.fullmatch(file.name) or leads_out(file, folder):
            continue
        data = _read(file, LIMIT if file.suffix == ".json" else HEAD_BYTES + 4 * num_pairs)
        if problem := _problem_of_json(file.name, data) if file.suffix == ".json" else _problem_of_labels(file):
            raise UserError(f"{str(file)!r} is not what this program writes: {problem} ({FLAG})")
        write_whole(target / file.name, lambda out, data=data: out.write(data))  # type: ignore[misc]


def _problem_of_json(name: str, data: bytes) -> str:
    """The defect of a record of an annotation, or ""."""
    kinds: dict[str, type] = {} if name == "config.json" else {"facts": dict, "counts": dict}
    if name == "merged.json":
        kinds |= {"shards": dict, "missing_shards": list}
    elif kinds:
        kinds |= {"log": dict, "finished": bool, "rows": int}
    try:
        record = parse_foreign_json(data)
    except ValueError as error:
        return str(error)
    wrong = [key for key, kind in kinds.items() if not isinstance(record.get(key), kind)]
    return f"it has no {wrong[0]!r}" if wrong else ""


def _problem_of_labels(file: Path) -> str:
    """The defect of the codes or probabilities of an annotation, or ""."""
    dtype, highest = ("float32", 1) if file.name.endswith("prob.npy") else ("int8", int(Preference.UNKNOWN))
    try:
        labels = read_array(file)
    except (OSError, ValueError) as error:
        return str(error)
    if labels.dtype != dtype or labels.ndim != 1:
        return f"it holds {labels.shape} {labels.dtype}"
    finite = labels[~np.isnan(labels)]
    return "" if ((finite >= 0) & (finite <= highest)).all() else f"it has numbers that are not between 0 and {highest}"


def _read(file: Path, limit: int) -> bytes:
    try:
        return read_bytes(file, limit)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"cannot read {str(file)!r}: {reason} ({FLAG})") from error
