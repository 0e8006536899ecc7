"""Labels to learn from: one annotation, or several mixed with weights, and which pairs train and which validate."""

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
    """Rows of the dataset."""

    train: np.ndarray
    validation: np.ndarray


def parse_annotators(text: str) -> dict[str, float]:
    """Names and weights: `name`, or `name:0.7,other:0.3`. The weights come to sum up to one."""
    found: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, weight = part.partition(":")
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or name in found:
            raise UserError(f"{text!r} does not list annotations as name:weight,name:weight ({FLAG})")
        try:
            found[name] = float(weight) if weight else 1.0
        except ValueError:
            found[name] = -1.0
        if not 0 < found[name] < float("inf"):
            raise UserError(f"the weight of annotation {name!r} must be a positive number, not {weight!r} ({FLAG})")
    whole = sum(found.values())
    return {name: weight / whole for name, weight in found.items()}


def soft_target(codes: np.ndarray, prob: np.ndarray | None) -> np.ndarray:
    """P(second is better): 0, 1 or 1/2 by the codes, or the annotator's own where it is known; NaN for unknown. [N]"""
    target = TARGETS[codes]
    if prob is not None:
        target = np.where(np.isnan(prob) | np.isnan(target), target, prob)
    return target


def mix(targets: dict[str, np.ndarray], weights: dict[str, float]) -> np.ndarray:
    """The weighted mean; unknown where any of them is. [N]"""
    # In float64, whose rounding is gone in float32: a tie of all annotators must come out as 1/2 and nothing near it.
    parts = [weights[name] * target.astype(np.float64) for name, target in targets.items()]
    return np.sum(parts, 0).astype(np.float32)


def check_targets(target: np.ndarray, names: str) -> None:
    """Refuses labels that nothing can be learnt from."""
    known = target[~np.isnan(target)]
    where = f"in annotation {names!r} ({FLAG})"
    if not len(known):
        raise UserError(f"no pair has a label that is known {where}: annotate it first, with --stage=annotate")
    if (known == 0.5).all():
        raise UserError(f"all {len(known):,} labels are ties {where}: there is nothing to learn")
    sides = known[known != 0.5] > 0.5
    if sides.all() or not sides.any():
        side = "second" if sides.all() else "first"
        raise UserError(f"all {len(sides):,} preferences are for the {side} moment {where}: there is nothing to learn")


def split_rows(known: np.ndarray, share: float, seed: int) -> Split:
    """Sets a share of the rows aside for validation, the same ones for the same seed."""
    order = np.random.default_rng([seed, 80]).permutation(known)
    cut = len(order) - round(share * len(order))
    return Split(np.sort(order[:cut]), np.sort(order[cut:]))
