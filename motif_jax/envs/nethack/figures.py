"""NetHack's figures of an episode, in addition to those of all worlds.

One is BALROG's progression: the probability, in percent, that a human player wins from the same point. BALROG (arXiv
2411.13543) estimates from human games how often players who reach a dungeon level, or an experience level, go on to
ascend. The progression of an episode is the larger of the numbers for its deepest level and its highest experience
level; it is 0 at the start and 100 after an ascension.
"""

from __future__ import annotations

from motif_jax.structs import EpisodeInfo

BY_DEPTH = (  # from dungeon level 1 on
    0, 1.539, 1.754, 2.122, 2.648, 3.543, 4.846, 6.958, 9.771, 12.559,
    16.127, 20.613, 25.66, 29.247, 30.881, 32.491, 34.008, 35.265, 36.549, 37.896,
    39.294, 40.832, 42.584, 44.518, 46.638, 50.676, 55.436, 60.156, 64.65, 69.131,
    71.011, 71.765, 72.321, 72.844, 73.278, 73.685, 74.215, 74.713, 75.373, 76.104,
    76.741, 77.253, 77.716, 78.126, 78.59, 78.903, 79.297, 79.674, 80.185, 80.68,
)  # fmt: skip
BY_EXPERIENCE = (  # from experience level 1 on
    0, 1.848, 2.081, 2.416, 2.911, 3.689, 5.076, 7.454, 11.705, 17.91,
    25.48, 33.265, 41.443, 49.404, 57.788, 62.612, 65.628, 68.102, 70.153, 71.745,
    72.87, 73.71, 74.434, 75.134, 75.855, 76.422, 77.034, 77.598, 77.833, 78.046,
)  # fmt: skip
ASCENDED = 100.0


def progression(max_depth: int, max_experience_level: int, ascended: bool) -> float:
    """Returns the progression of an episode, from 0 to 100."""
    if ascended:
        return ASCENDED
    return max(_at(BY_DEPTH, max_depth), _at(BY_EXPERIENCE, max_experience_level))


def _at(chances: tuple[float, ...], level: int) -> float:
    """Returns the entry of a level; 0 for levels outside the table, as in BALROG."""
    return chances[level - 1] if 1 <= level <= len(chances) else 0.0


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
    """Makes the record of an episode.

    `max_experience_level`: the highest so far; levels can be lost. `figures`: all of FIGURES, or of EXTENDED_FIGURES,
    except `progression`, which is computed from them.
    """
    names = EXTENDED_FIGURES if "kills" in figures else FIGURES
    assert figures.keys() == names.keys() - {"progression"}
    highest = max(max_experience_level, int(figures["experience_level"]))
    figures["progression"] = progression(int(figures["max_depth"]), highest, bool(figures["ascended"]))
    return EpisodeInfo(episode, steps, episode_return, end_status, success, tuple(figures[name] for name in names))
