"""BALROG's progression of an episode: the best of all its moments, by a table."""

import numpy as np
import pytest

from motif_jax.envs.nethack.figures import BY_DEPTH, BY_EXPERIENCE, FIGURES, progression
from motif_jax.envs.nethack.game import NetHackGame
from motif_jax.envs.nethack.observations import FRAME
from motif_jax.envs.nethack.tasks import get_task
from motif_jax.envs.seeding import SeedStream, game_seed

pytestmark = pytest.mark.quick


def test_the_better_of_both_levels_counts():
    """The authors' own example: about 30 % at dungeon level 15, 33 % at experience level 12, together 33 %."""
    assert int(BY_DEPTH[14]) == 30
    assert int(progression(15, 12, False)) == 33
    assert progression(15, 1, False) == BY_DEPTH[14]
    assert progression(1, 1, True) == 100
    assert progression(-5, 1, False) == progression(99, 1, False) == 0  # the planes, and what does not exist


def test_it_is_that_of_the_best_frame():
    """Beside a slow twin that looks every frame up, as BALROG does."""
    chances = {f"Dlvl:{at}": chance for at, chance in enumerate(BY_DEPTH, 1)}
    chances |= {f"Xp:{at}": chance for at, chance in enumerate(BY_EXPERIENCE, 1)}
    buffers = {name: np.zeros(spec.shape, spec.dtype) for name, spec in FRAME.items()}
    game = NetHackGame(get_task("score"), buffers, max_episode_steps=2000)
    rng, found = np.random.default_rng(1), []
    for episode in range(12):
        game.reset(game_seed(3, SeedStream.EVALUATE, episode), episode)
        best = 0.0
        while not game.end:
            game.step(int(rng.integers(game.num_actions)))
            frame = game.last_frame["blstats"] if game.end else buffers["blstats"]
            best = max(best, chances.get(f"Dlvl:{frame[12]}", 0.0), chances.get(f"Xp:{frame[18]}", 0.0))
        assert game.info().named(FIGURES)["progression"] == best
        found.append(best)
    game.close()
    assert max(found) > 0
