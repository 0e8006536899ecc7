"""Inputs of reward training: annotations, their weights, checksums of their labels; and config values set to `auto`."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.preferences.folders import annotation_folder
from motif_jax.preferences.neutral import NEUTRAL
from motif_jax.preferences.store import PairDataset, digest_of, fingerprint
from motif_jax.rewards import labels
from motif_jax.stages.annotate.setup import label_name
from motif_jax.system.files import checkpoint_steps, read_json

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
    section = dict(read_json(file)["reward"])
    return {name: str(section.get(name, old)) for name, old in CHOSEN.items()}


def learnt_from(config: ConfigDict) -> dict[str, float]:
    """Names of the annotations that the reward is learnt from, with their weights."""
    return labels.parse_annotators(config.reward.annotators) or {label_name(config.annotate): 1.0}


def label_checksums(dataset: PairDataset, config: ConfigDict) -> dict[str, str]:
    """Checksums of the dataset and of all labels, which identify what a reward was learnt from."""
    found = {"dataset": fingerprint(dataset)}
    for name in learnt_from(config):
        found[name] = digest_of([dataset.preference(name)])
        prob = annotation_folder(dataset.path, name) / "prob.npy"
        if config.reward.labels != "hard" and prob.exists():
            found[f"{name}.prob"] = _sum_of(prob)
        if config.reward.anchor != "none" and prob.with_name(NEUTRAL).exists():
            found[f"{name}.neutral"] = _sum_of(prob.with_name(NEUTRAL))
    return found


def _sum_of(file: Path) -> str:
    with open(file, "rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
