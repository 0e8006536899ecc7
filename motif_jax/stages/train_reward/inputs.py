"""The annotations that a reward is learnt from: their names, weights, and checksums of their labels."""

from __future__ import annotations

from ml_collections import ConfigDict

from motif_jax.preferences.folders import annotation_folder
from motif_jax.preferences.shards import checksum
from motif_jax.preferences.store import PairDataset, fingerprint
from motif_jax.rewards import labels
from motif_jax.stages.annotate.setup import label_name
from motif_jax.system.foreign import sha256_of


def learnt_from(config: ConfigDict) -> dict[str, float]:
    """Names of the annotations that the reward is learnt from, with their weights."""
    return labels.parse_annotators(config.reward.annotators) or {label_name(config.annotate): 1.0}


def label_checksums(dataset: PairDataset, config: ConfigDict) -> dict[str, str]:
    """Checksums of the dataset and of all labels, which identify what a reward was learnt from."""
    found = {"dataset": fingerprint(dataset)}
    for name in learnt_from(config):
        found[name] = checksum(dataset.preference(name))
        prob = annotation_folder(dataset.path, name) / "prob.npy"
        if config.reward.labels == "soft" and prob.is_file():
            found[f"{name}.prob"] = sha256_of(prob)
    return found
