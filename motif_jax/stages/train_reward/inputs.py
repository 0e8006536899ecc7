"""Inputs of reward training: annotations, their weights, checksums of their labels; and config values set to `auto`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from motif_jax.files import checkpoint_steps, read_json
from motif_jax.preferences.folders import annotation_folder
from motif_jax.preferences.merging import sum_of
from motif_jax.preferences.neutral import NEUTRAL
from motif_jax.preferences.shards import checksum
from motif_jax.preferences.store import PairDataset, fingerprint
from motif_jax.rewards import labels
from motif_jax.stages.annotate.setup import label_name
from motif_jax.structs import UserError
from motif_jax.system.arrays import read_array

AUTO = "auto"
CHOSEN = {"labels": "hard", "anchor": "none"}  # values that may be AUTO, and what they were before they could be


def chosen(config: ConfigDict, workdir: Path) -> ConfigDict:
    """The config without AUTO: its values are those that the reward in the workdir began with.

    A new reward learns from soft labels, and soft labels have the neutral moment as their anchor.
    """
    config, section = config.copy_and_resolve_references(), config.reward
    before = _begun_with(workdir)
    labels_are = before.get("labels", "soft") if section.labels == AUTO else section.labels
    anchor = before.get("anchor", "neutral" if labels_are == "soft" else "none")
    config.reward.update({"labels": labels_are, "anchor": anchor if section.anchor == AUTO else section.anchor})
    return config


def _begun_with(workdir: Path) -> dict[str, str]:
    """The values in CHOSEN of the workdir's reward; {} if there is no reward yet."""
    file = workdir / "reward" / "config.json"
    if not checkpoint_steps(workdir / "reward" / "checkpoints") or not file.exists():
        return {}
    try:
        section = dict(read_json(file)["reward"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{str(file)!r} is damaged ({error}): restore it, or choose another --workdir") from error
    return {name: str(section.get(name, old)) for name, old in CHOSEN.items()}


def learnt_from(config: ConfigDict) -> dict[str, float]:
    """Names of the annotations that the reward is learnt from, with their weights."""
    return labels.parse_annotators(config.reward.annotators) or {label_name(config.annotate): 1.0}


def label_checksums(dataset: PairDataset, config: ConfigDict) -> dict[str, str]:
    """Checksums of the dataset and of all labels, which identify what a reward was learnt from."""
    found = {"dataset": fingerprint(dataset)}
    for name in learnt_from(config):
        found[name] = checksum(dataset.preference(name))
        prob = annotation_folder(dataset.path, name) / "prob.npy"
        if config.reward.labels != "hard" and prob.exists():
            found[f"{name}.prob"] = sum_of(prob)
        if config.reward.anchor != "none" and prob.with_name(NEUTRAL).exists():
            found[f"{name}.neutral"] = sum_of(prob.with_name(NEUTRAL))
    return found


def load_prob(file: Path, count: int) -> np.ndarray:
    """P(second is better) as annotators gave it, NaN where unknown. [N] float32"""
    try:
        prob = read_array(file)
    except (OSError, ValueError):
        raise UserError(f"{str(file)!r} is damaged: make the annotation again ({labels.FLAG})") from None
    known = prob[~np.isnan(prob)] if prob.dtype == np.float32 else prob
    if prob.shape != (count,) or prob.dtype != np.float32 or (known < 0).any() or (known > 1).any():
        raise UserError(f"{str(file)!r} must hold ({count},) float32 between 0 and 1 ({labels.FLAG})")
    return prob


def check_origin(record: Path, name: str, made_of: str, arrays: Mapping[str, np.ndarray | None]) -> None:
    """Raises UserError for labels of another dataset or changed after merging; published labels lack the record."""
    if not record.exists():
        return
    try:
        known = read_json(record)
        origin, sums = known["facts"]["dataset"], dict(known["checksums"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{str(record)!r} is damaged: {error} ({labels.FLAG})") from error
    if origin != made_of:
        raise UserError(f"annotation {name!r} was made for another dataset ({labels.FLAG})")
    for kind, array in arrays.items():
        if array is not None and sums.get(kind) != checksum(array):
            raise UserError(
                f"the {kind} of annotation {name!r} have changed since they were merged, as their checksum shows: "
                f"--stage=annotate merges its shards again ({labels.FLAG})"
            )
