"""Chooses the episodes for training and for validation."""

from __future__ import annotations

import numpy as np
from ml_collections import ConfigDict

from motif_jax.offline.recipes import Recipe
from motif_jax.structs import UserError
from motif_jax.transcripts.render import Renderer
from motif_jax.transcripts.store import Transcripts


def choose_episodes(
    section: ConfigDict, recipe: Recipe, transcripts: Transcripts, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Episodes to learn from, the best ones if the recipe is selective, and to validate with. Ascending, [N] and [M]

    The split depends on the seed alone.
    """
    count = len(transcripts)
    order = np.random.default_rng((seed, 1)).permutation(count)
    num_held = min(max(1, round(count * section.validation_share)), count - 1)
    if not num_held:
        raise UserError(f"{count} episodes are too few to train and to validate (--config.transcripts.path)")
    learnt, held = np.sort(order[num_held:]), np.sort(order[:num_held])
    if recipe.selective:
        learnt = best_episodes(learnt, transcripts.returns(), section.best_share)
    return learnt, held


def best_episodes(episodes: np.ndarray, returns: np.ndarray, share: float) -> np.ndarray:
    """The share of the episodes with the highest returns, at least one, ascending; the first of equal ones."""
    count = max(1, round(len(episodes) * share))
    order = np.argsort(-returns[episodes], kind="stable")
    return np.sort(episodes[order[:count]])


def describe_cut(renderer: Renderer, max_length: int) -> str:
    """A sentence about episodes that are longer than a row; "" without any."""
    long = int((renderer.lengths > max_length).sum())
    if not long:
        return ""
    return (
        f"{long:,} of {len(renderer.lengths):,} episodes have more than {max_length:,} tokens and are truncated (the "
        f"longest has {int(renderer.lengths.max()):,})"
    )
