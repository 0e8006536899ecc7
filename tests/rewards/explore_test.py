"""New squares as a reward, against a slow twin, and in NetHack."""

import numpy as np
import pytest
from nle import nethack

from motif_jax.envs.nethack.game_settings import GameSettings
from motif_jax.envs.nethack.observations import BLANK_GLYPH, observation_specs
from motif_jax.envs.nethack.vector import GameVector
from motif_jax.rewards.explore import Explore

pytestmark = pytest.mark.quick
STEPS, GAMES, CALLS = 8, 3, 30


def test_a_step_is_worth_its_new_squares():
    rng = np.random.default_rng(0)
    source, paid = Explore(), []
    first = rng.random((STEPS * CALLS, GAMES)) < 0.05
    first[0] = True
    drawn = rng.integers(100, size=first.shape, dtype=np.int32)
    bottom = np.zeros((*first.shape, 27), np.int32)
    bottom[..., 24] = rng.integers(1, 4, size=first.shape)
    for call in range(CALLS):
        at = slice(call * STEPS, (call + 1) * STEPS)
        begins = np.concatenate([first[at], np.zeros((1, GAMES), bool)])
        order = rng.permutation(GAMES)  # games come in another order each time
        rollouts = {"first": begins, "event_drawn": drawn[at], "event_blstats": bottom[at]}
        rollouts = {name: array[:, order] for name, array in rollouts.items()} | {"game": order[None]}
        found = np.empty((STEPS, GAMES))
        found[:, order] = source.rewards(rollouts)
        paid.append(found)
    paid = np.concatenate(paid)
    for game in range(GAMES):
        begin = 0
        for step in range(len(first)):
            begin = step if first[step, game] else begin
            past = range(begin, step)
            level = bottom[step, game, 24]
            most = max((drawn[t, game] for t in past if bottom[t, game, 24] == level), default=0)
            assert paid[step, game] == (max(drawn[step, game] - most, 0) if step > begin else 0)


def play(steps: int, **settings) -> dict[str, np.ndarray]:
    """Random play of four games, as rows of the results of steps."""
    names = ("event_message", "event_blstats", "event_drawn", "event_glyphs")
    vector = GameVector(4, GameSettings(**settings), names, seed=1)
    vector.reset()
    rows = {name: np.zeros((steps, 4, *spec.shape), spec.dtype) for name, spec in observation_specs(names).items()}
    rows["reward"] = np.zeros((steps, 4), np.float32)
    rows["terminated"], rows["truncated"] = np.zeros((2, steps, 4), bool)
    rng = np.random.default_rng(0)
    for step in range(steps):
        vector.step(
            rng.integers(23, size=4).tolist(), vector.open_rows({name: row[step] for name, row in rows.items()})
        )
    vector.close()
    return rows


def test_drawn_squares_are_those_of_the_map():
    assert BLANK_GLYPH == nethack.GLYPH_CMAP_OFF
    rows = play(400, max_episode_steps=150)  # ends of episodes included
    assert rows["truncated"].any()
    assert (rows["event_drawn"] == (rows["event_glyphs"] != nethack.GLYPH_CMAP_OFF).sum((2, 3))).all()


def test_a_step_onto_stairs_has_a_message_if_asked():
    plain, told = play(1500), play(1500, stairs_message=True)
    assert (plain["event_blstats"] == told["event_blstats"]).all()  # the game is the same
    texts = [[bytes(one).rstrip(b"\0") for one in rows["event_message"].reshape(-1, 256)] for rows in (plain, told)]
    changed = [(old, new) for old, new in zip(*texts, strict=True) if old != new]
    assert len(changed) > 3
    assert set(changed) == {(b"", b"There is a staircase down here.")}
