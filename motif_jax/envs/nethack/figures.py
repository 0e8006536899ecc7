"""The figures of an episode of NetHack, beside those that every world has."""

from __future__ import annotations

from motif_jax.structs import EpisodeInfo

FIGURES: dict[str, type] = {  # of the last frame before the end
    "ascended": bool,
    "score": int,
    "turns": int,
    "depth": int,
    "max_depth": int,
    "gold": int,
    "experience_level": int,
    "scout": int,  # glyphs seen, summed over the levels visited
}


def make_info(
    *, episode: int, steps: int, episode_return: float, end_status: int, success: bool, **figures: float
) -> EpisodeInfo:
    """The record of an episode; `figures` are all of FIGURES, by name."""
    assert figures.keys() == FIGURES.keys()
    return EpisodeInfo(episode, steps, episode_return, end_status, success, tuple(figures[name] for name in FIGURES))
