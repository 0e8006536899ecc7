"""TextArena's games as worlds, and its Wordle beside ours; both run TextArena itself."""

import random
import re

import numpy as np
import pytest

from motif_jax.envs.wordle.world import Vocabulary
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.envs.worlds import check_world, make_world
from motif_jax.structs import EndStatus

textarena = pytest.importorskip("textarena", reason="needs TextArena: pip install textarena")
from motif_jax.envs.arena_world import ArenaWorld  # noqa: E402

GAMES = 2_000
SQUARES = {"<g>": "G", "<y>": "Y", "<b>": "X"}


class Guess(ArenaWorld):
    id = "GuessTheNumber-v0"
    moves = tuple(f"[{number}]" for number in range(1, 21))


class Hanoi(ArenaWorld):
    id = "TowerOfHanoi-v0"
    moves = tuple(f"[{one} {other}]" for one in "ABC" for other in "ABC" if one != other)


def world_of(name: str, **env):
    return check_world({"world": f"arena_world_test:{name}", **env})


def played(game, episode: int, seed: int = 7):
    game.begin(game_seed(seed, SeedStream.TRAIN, episode), episode)
    chances = np.random.default_rng(episode)
    while game.end == EndStatus.RUNNING:
        game.say(game.draw(chances.random()))
        yield


@pytest.mark.parametrize("name", ["Guess", "Hanoi"])
def test_games_that_are_played_in_turn_are_those_played_alone(name):
    """TextArena draws from Python's global generator, which games and program share."""
    world = world_of(name, max_episode_steps=30)
    alone = []
    for episode in range(6):
        game = world.game()
        for _ in played(game, episode):
            pass
        alone.append(game.record())
    games = [world.game() for _ in range(6)]
    random.seed(5)
    mine = random.getstate()
    running = [played(game, episode) for episode, game in enumerate(games)]
    while running:
        running = [one for one in running if next(one, running) is None]
    assert random.getstate() == mine
    assert [game.record() for game in games] == alone
    assert len({record.turns for record in alone}) > 1


def test_the_same_reward_and_texts_as_textarena_alone():
    env, game = textarena.make("GuessTheNumber-v0-raw"), world_of("Guess").game()
    wins = 0
    for episode in range(20):
        game.begin(game_seed(1, SeedStream.TRAIN, episode), episode)
        env.reset(num_players=1, seed=game.hidden)
        assert game.turns[0].text == env.get_observation()[1][0][1]
        guesses = iter(random.Random(episode).sample(range(1, 21), 20))
        done = False
        while not done:
            text = f"I think [{next(guesses)}]"
            done, _ = env.step(action=text)
            reward = game.say(text)
            replies = [message for speaker, message, _ in env.get_observation()[1] if speaker != 0]
            assert game.heard.startswith("\n".join(replies))
        rewards, infos = env.close()
        assert reward == rewards[0]
        assert (game.end == EndStatus.TASK_SUCCESSFUL) == (rewards[0] == 1)
        assert game.heard.endswith(infos[0]["reason"])
        wins += rewards[0] == 1
    assert 0 < wins < 20


def test_wordle_has_the_colours_and_ends_of_textarenas():
    from textarena.envs.Wordle.env import WordleEnv

    world = make_world({"world": "wordle", "options": '{"counted": true}'})
    words, rng, wins = world.vocabulary.words, np.random.default_rng(0), 0
    env = WordleEnv.__new__(WordleEnv)  # its own list of words would be downloaded
    textarena.Env.__init__(env)
    env.word_length, env.num_guesses, env.word_list, env._check_word = 5, 6, list(words), lambda word: True
    for episode in range(GAMES):
        env.reset(seed=episode)
        hidden = env.state.game_state["secret_word"]
        game = world.game_with(Vocabulary((hidden,), counted=True))
        game.begin(game_seed(0, SeedStream.TRAIN, episode), episode)
        guesses = [words[place] for place in rng.choice(len(words), 6, replace=False)]
        if hidden not in guesses and rng.random() < 0.5:
            guesses[rng.integers(6)] = hidden
        if rng.random() < 0.3:
            guesses[rng.integers(5)] = "".join(rng.permutation(list(hidden)))  # many letters at wrong places
        for guess in dict.fromkeys(guesses):
            done, _ = env.step(f"[{guess}]")
            game.say(guess)
            letters = "".join(env.state.game_state["guess_history"][-1][1])
            assert "".join(SQUARES[square] for square in re.findall("<.>", game.heard)) == letters, (hidden, guess)
            assert done == (game.end != EndStatus.RUNNING), (hidden, guesses)
            if done:
                break
        won = game.end == EndStatus.TASK_SUCCESSFUL
        assert won == (env.state.rewards == {0: 1} and letters == "GGGGG")
        wins += won
    assert 0.3 * GAMES < wins < 0.7 * GAMES


def test_training_and_evaluation_have_other_games():
    game, seeds = world_of("Guess").game(), {}
    for stream in (SeedStream.TRAIN, SeedStream.EVALUATE):
        for episode in range(50):
            game.begin(game_seed(0, stream, episode), episode)
            seeds.setdefault(stream, set()).add(game.hidden % 2)
    assert seeds == {SeedStream.TRAIN: {0}, SeedStream.EVALUATE: {1}}
