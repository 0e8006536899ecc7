"""Worlds that are played by writing, as actors, evaluation and replays see them."""

import json
import math

import numpy as np
import pytest
from conftest import refusal

from motif_jax.actors.pool import ActorPool
from motif_jax.actors.recorder import play_episodes
from motif_jax.envs.conversation import Conversation
from motif_jax.envs.text_game import Answer
from motif_jax.envs.world import SeedStream, game_seed, to_row, to_text
from motif_jax.envs.worlds import check_world, make_world
from motif_jax.episodes.playback import PlayedAgain, Track, figures_of
from motif_jax.stages.collect import play_in_order
from motif_jax.structs import EndStatus, Episode, EpisodeInfo, Turn, UserCodeError

pytestmark = pytest.mark.quick
OWN = "own_worlds:EchoWorld"
OF = {
    "wordle": "repeat*0.6+candidate*0.4:3,optimal:1", "maze": "optimal*0.8+random*0.2",
}  # fmt: skip


@pytest.mark.parametrize("text", ["", "naïve café", "a\U0001f600", "é" * 20, "\ud800", "a\0b"])
def test_a_text_becomes_an_array_and_a_text_again(text):
    row = to_row(text, 16)
    assert (row.shape, row.dtype) == ((16,), np.uint8)
    again = to_text(row)
    assert to_text(row.tolist()) == again
    assert np.array_equal(to_row(again, 16), row) or "\0" in text
    if len(text.encode("utf-8", "replace")) <= 16 and text.isprintable():
        assert again == text
    assert "\ufffd" not in again  # no character is cut in two


def from_steps(info: EpisodeInfo, steps: dict[str, np.ndarray]) -> Episode:
    """An episode from the steps of a pool's rollouts. [T, ...] each"""
    opening = to_text(steps["heard"][0])
    turns = [Turn(opening)] if opening else []
    for action, reward, reply in zip(steps["action"], steps["reward"].tolist(), steps["event_heard"], strict=True):
        turns.append(Turn(to_text(action), reward))
        if heard := to_text(reply):
            turns.append(Turn(heard))
    return Episode(tuple(turns), info.end_status > EndStatus.RUNNING, {"episode": info.episode})


def check_pool(name: str, player: str, workers: int = 0) -> None:
    """Games through a pool are the recorded ones."""
    keys, through = ("heard", "event_heard"), []
    with ActorPool(
        {"world": name}, keys, num_workers=workers, games_per_worker=3, rollout_length=7, player=player, seed=3,
        stream=SeedStream.COLLECT,
    ) as pool:  # fmt: skip
        played = play_in_order(pool, None, {key: key for key in (*keys, "action", "reward")}, 0)
        while len(through) < 12:
            through += [from_steps(*episode) for episode in next(played)]
    assert through == list(play_episodes(make_world({"world": name}), player, range(len(through)), seed=3))


@pytest.mark.parametrize(("name", "workers"), [*((name, 0) for name in OF), ("wordle", 2)])
def test_games_through_a_pool_are_the_recorded_ones(name, workers):
    check_pool(name, OF[name], workers)


def check_players(name: str) -> None:
    """All scripted players play whole games, the same ones twice."""
    world = make_world({"world": name})
    for player in world.players:
        if player == "user":
            continue
        first, again = (list(play_episodes(world, player, range(5), seed=1)) for _ in range(2))
        assert first == again
        for episode in first:
            assert episode.terminal
            assert episode.turns[-1].is_action or len(episode.turns) > 1
            json.dumps(episode)  # plain values


@pytest.mark.differs("ilql", there="the data is not available", here="scripted players record games")
@pytest.mark.parametrize("name", OF)
def test_scripted_players_of_every_world_play_whole_games(name):
    check_players(name)


def test_texts_of_a_policy_lose_control_characters():
    nothing = np.full(1, np.nan, np.float32)
    track = Track(np.stack([to_row("\x1b[2J\x07a", 16)]), *[nothing] * 4)
    game = make_world({"world": "wordle", "max_episode_steps": 1}).game()
    game.reset(game_seed(4, SeedStream.EVALUATE, 0), 0)
    game.step(track.action[0])
    assert game.message.decode().isprintable()
    row = figures_of(game.info(), ("guesses", "malformed", "words_left")) | {"cause": ""}
    env = {"world": "wordle", "max_episode_steps": 1}
    replay = PlayedAgain(env, 4, list).replay(row, track, {"player": "me", "chosen": []})
    assert replay.metadata["action_names"] == [" [2J a"]
    assert (replay.chars[1] >= 32).all()


def test_wrong_answers_of_a_users_game_are_refused_with_one_sentence(monkeypatch):
    talk, right = Conversation({"world": OWN}), Answer("yes", 1.0, EndStatus.RUNNING, "")
    changes = [{"text": b"yes"}, *({"reward": value} for value in (math.nan, 1e39, "1", 10**400)), {"end": "over"}]
    for wrong in (None, "yes", ("yes", 1.0), *(right._replace(**change) for change in changes)):
        talk.begin(0)
        monkeypatch.setattr("own_worlds.Echo.answer", lambda self, text, wrong=wrong: wrong)
        assert refusal(lambda: talk.say("la")).startswith("answer() of the game 'Echo' must return (text, reward, end,")
        check_world({"world": OWN})  # does not play it
    monkeypatch.setattr("own_worlds.Echo.open", lambda self: 7)
    with pytest.raises(UserCodeError, match=r"^the world 'own_worlds:EchoWorld' failed with TypeError: "):
        Conversation({"world": OWN}).begin(0)
