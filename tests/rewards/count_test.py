"""The rewards for what is new, against slow twins that play the rollouts step by step."""

import numpy as np
import pytest
from nle import nethack

from motif_jax.envs.nethack.observations import BLANK_GLYPH, observation_specs
from motif_jax.envs.nethack.world import GameSettings, GameVector
from motif_jax.envs.world import WAIT
from motif_jax.rewards.count import CountBonus
from motif_jax.rewards.explore import Explore

pytestmark = pytest.mark.quick
T, B = 6, 4


def rollouts_of(rng, games, first, kinds=3):
    """Rollouts of some games; `first` tells of each whether its next step begins an episode, and is changed."""
    ended = rng.random((T, B)) < 0.2
    cut = ended & (rng.random((T, B)) < 0.5)
    begins = np.zeros((T + 1, B), bool)
    for column, game in enumerate(games):
        begins[0, column] = first[game]
        begins[1:, column] = ended[:, column]
        first[game] = bool(ended[-1, column])
    return {
        "action": np.where(~ended & (rng.random((T, B)) < 0.2), WAIT, 0), "reward": np.zeros((T, B), np.float32),
        "first": begins, "game": np.array([games]), "terminated": ended & ~cut, "truncated": cut,
        "event_blstats": rng.integers(kinds, size=(T, B, 2)), "crop": rng.integers(kinds, size=(T + 1, B, 1)),
    }  # fmt: skip


@pytest.mark.parametrize(("of", "exponent"), [("event_blstats", 0.5), ("crop", 1.0)])
def test_repeated_observations_are_worth_less(of, exponent):
    rng, source = np.random.default_rng(0), CountBonus(of, exponent)
    assert source.observations == (of,)
    first = dict.fromkeys(range(2 * B), True)
    seen = {game: [] for game in first}  # what the episode has shown so far
    for number in range(20):
        games = list(rng.permutation(2 * B)[:B])  # groups take turns
        if number == 9:
            first[games[0]] = True  # a worker died: its game begins again
        arrays = rollouts_of(rng, games, first)
        got = source.rewards(arrays)
        for column, game in enumerate(games):
            for step in range(T):
                if arrays["first"][step, column]:
                    seen[game] = []
                ends = arrays["terminated"][step, column] or arrays["truncated"][step, column]
                waits = arrays["action"][step, column] == WAIT
                if waits or (of == "crop" and ends):  # the next frame is another episode's
                    assert got[step, column] == 0
                    continue
                shown = arrays[of][step + (of == "crop"), column].tolist()
                seen[game].append(shown)
                assert got[step, column] == pytest.approx(seen[game].count(shown) ** -exponent)


def test_messages_are_counted_by_the_game():
    source = CountBonus("event_message", 0.5)
    assert source.observations == ("event_message_count",)
    counts = np.array([[1, 4], [9, 1]], np.int32)
    assert source.rewards({"event_message_count": counts}) == pytest.approx(1 / np.sqrt(counts))
    assert CountBonus("event_message", 0.0).rewards({"event_message_count": counts}).tolist() == [[1, 1], [1, 1]]


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


def test_drawn_squares_are_those_of_the_map():
    """In random play of four games, ends of episodes included."""
    assert BLANK_GLYPH == nethack.GLYPH_CMAP_OFF
    names = ("event_message", "event_blstats", "event_drawn", "event_glyphs")
    vector, rng = GameVector(4, GameSettings(max_episode_steps=150), names, seed=1), np.random.default_rng(0)
    vector.reset()
    rows = {name: np.zeros((200, 4, *spec.shape), spec.dtype) for name, spec in observation_specs(names).items()}
    rows["reward"] = np.zeros((200, 4), np.float32)
    rows["terminated"], rows["truncated"] = np.zeros((2, 200, 4), bool)
    for step in range(200):
        opened = vector.open_rows({name: row[step] for name, row in rows.items()})
        vector.step(rng.integers(23, size=4).tolist(), opened)
    vector.close()
    assert rows["truncated"].any()
    assert (rows["event_drawn"] == (rows["event_glyphs"] != nethack.GLYPH_CMAP_OFF).sum((2, 3))).all()
