"""The figures of an episode of NetHack, beside those that every world has."""

from __future__ import annotations

from motif_jax.envs.nethack.progression import progression
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
    "progression": float,  # BALROG's, in percent
}
EXTENDED_FIGURES = FIGURES | {"kills": int}  # of games with the extended actions


def make_info(
    *,
    episode: int,
    steps: int,
    episode_return: float,
    end_status: int,
    success: bool,
    max_experience_level: int = 0,
    **figures: float,
) -> EpisodeInfo:
    """The record of an episode.

    Args:
      episode, steps, episode_return, end_status, success: see `EpisodeInfo`.
      max_experience_level: the highest so far, where that may be more than the last one.
      figures: all of FIGURES, or of EXTENDED_FIGURES, by name, except `progression`, which follows from them.
    """
    names = EXTENDED_FIGURES if "kills" in figures else FIGURES
    assert figures.keys() == names.keys() - {"progression"}
    highest = max(max_experience_level, int(figures["experience_level"]))
    figures["progression"] = progression(int(figures["max_depth"]), highest, bool(figures["ascended"]))
    return EpisodeInfo(episode, steps, episode_return, end_status, success, tuple(figures[name] for name in names))
