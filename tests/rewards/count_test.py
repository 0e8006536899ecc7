"""The count bonus against a slow twin that plays the rollouts step by step."""

import numpy as np
import pytest

from motif_jax.envs.world import WAIT
from motif_jax.rewards.count import CountBonus

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
def test_what_an_episode_shows_again_is_worth_less(of, exponent):
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
