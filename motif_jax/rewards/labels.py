"""Training labels from one annotation or a weighted mix of several, and the split into training and validation."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from motif_jax.preferences.store import Preference
from motif_jax.structs import UserError

FLAG = "--config.reward.annotators"
MEANING = {Preference.FIRST: 0.0, Preference.SECOND: 1.0, Preference.TIE: 0.5, Preference.UNKNOWN: np.nan}
TARGETS = np.array([MEANING[code] for code in sorted(Preference)], np.float32)


class Split(NamedTuple):
    """Row numbers of the pairs for training and for validation."""

    train: np.ndarray
    validation: np.ndarray


def parse_annotators(text: str) -> dict[str, float]:
    """Parses `name`, or `name:0.7,other:0.3`, into weights by name, normalised to sum to one."""
    weights: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, weight = part.partition(":")
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or name in weights:
            raise UserError(f"{text!r} does not list annotations as name:weight,name:weight ({FLAG})")
        try:
            weights[name] = float(weight) if weight else 1.0
        except ValueError:
            weights[name] = -1.0
        if not 0 < weights[name] < float("inf"):
            raise UserError(f"the weight of annotation {name!r} must be a positive number, not {weight!r} ({FLAG})")
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def soft_target(codes: np.ndarray, prob: np.ndarray | None) -> np.ndarray:
    """P(second is better): the annotator's own where known, else 0, 1 or 1/2 from the code; NaN: unknown. [N]"""
    target = TARGETS[codes]
    if prob is not None:
        target = np.where(np.isnan(prob) | np.isnan(target), target, prob)
    return target


def mix(targets: dict[str, np.ndarray], weights: dict[str, float]) -> np.ndarray:
    """The weighted mean of the targets; NaN where any of them is NaN. [N]"""
    # In float64, whose rounding errors vanish in float32: a tie of all annotators must give exactly 1/2.
    parts = [weights[name] * target.astype(np.float64) for name, target in targets.items()]
    return np.sum(parts, 0).astype(np.float32)


def check_targets(target: np.ndarray, names: str) -> None:
    """Raises a UserError if nothing can be learnt from the labels: all unknown, all ties, or all for one side."""
    known = target[~np.isnan(target)]
    where = f"in annotation {names!r} ({FLAG})"
    if not len(known):
        raise UserError(f"no pair has a known label {where}: run --stage=annotate first")
    if (known == 0.5).all():
        raise UserError(f"all {len(known):,} labels are ties {where}: there is nothing to learn")
    sides = known[known != 0.5] > 0.5
    if sides.all() or not sides.any():
        side = "second" if sides.all() else "first"
        raise UserError(f"all {len(sides):,} preferences are for the {side} moment {where}: there is nothing to learn")


def split_rows(known: np.ndarray, share: float, seed: int) -> Split:
    """Splits the rows: a share of them is for validation, the same rows for the same seed."""
    order = np.random.default_rng([seed, 80]).permutation(known)
    cut = len(order) - round(share * len(order))
    return Split(np.sort(order[:cut]), np.sort(order[cut:]))
