"""Many games in lock-step: readings, and how one episode follows another."""

import numpy as np
import pytest

from motif_jax.envs.nethack.game_settings import GameSettings
from motif_jax.envs.nethack.observations import POLICY_OBSERVATIONS, open_rows
from motif_jax.envs.nethack.vector import GameVector
from motif_jax.envs.world import step_specs

pytestmark = pytest.mark.quick


def make(num_games: int, task: str = "score", **settings) -> tuple[GameVector, dict]:
    vector = GameVector(num_games, GameSettings(task=task, **settings), (*POLICY_OBSERVATIONS, "event_blstats"))
    vector.reset()
    specs = step_specs() | vector.observer.specs
    return vector, {key: np.zeros((num_games, *spec.shape), spec.dtype) for key, spec in specs.items()}


def advance(vector: GameVector, actions: list[int], rows: dict) -> None:
    rows["terminated"][:] = rows["truncated"][:] = False
    vector.step(actions, open_rows(rows))


def test_readings_are_changes_of_the_bottom_line():
    names = ("event_score", "event_health", "event_gold", "event_idle")
    vector = GameVector(2, GameSettings(max_episode_steps=60), ("blstats", "event_blstats", *names))
    vector.reset()
    rows = {key: np.zeros((2, *spec.shape), spec.dtype) for key, spec in (step_specs() | vector.observer.specs).items()}
    seen = set()
    for actions in np.random.default_rng(0).integers(23, size=(150, 2)).tolist():
        vector.observe(open_rows(rows))
        before = rows["blstats"].copy()
        advance(vector, actions, rows)
        changes = rows["event_blstats"] - before
        for name, place in zip(names, (9, 10, 13), strict=False):
            assert rows[name].tolist() == changes[:, place].tolist()
        passed = (changes[:, 20] != 0).tolist()
        asks = [game.message.startswith((b"What do you want", b"In what direction")) for game in vector.games]
        assert rows["event_idle"].tolist() == [not (p or a) for p, a in zip(passed, asks, strict=True)]
        seen.update(zip(passed, asks, strict=True))
    assert seen == {(True, False), (False, False), (False, True)}  # an open question takes no time, and is not idle


def test_a_new_episode_follows_at_once():
    vector, rows = make(1, max_episode_steps=3)
    first = []
    for _ in range(7):
        advance(vector, [19], rows)
        vector.observe(open_rows(rows))
        first.append(bool(vector.first[0]))
        if vector.finished:
            _, info = vector.finished[0]
            assert info.steps == 3
            assert rows["truncated"][0]
            assert not rows["terminated"][0]
            assert rows["message_count"][0] == 1  # the new episode has shown its first message once
            assert rows["blstats"][0, 20] == 1  # its clock
            assert rows["event_blstats"][0, 20] > 1
    assert first == [False, False, True, False, False, True, False]


def test_reference_time_limit_is_a_true_end():
    vector, rows = make(1, max_episode_steps=2, reference_time_limit=True)
    for _ in range(2):
        advance(vector, [19], rows)
    assert rows["terminated"][0]
    assert not rows["truncated"][0]
