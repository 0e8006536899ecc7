import random

import jax
import numpy as np
import pytest
from conftest import get_config, viewed

from motif_jax import experiment
from motif_jax.envs.babyai.game import BotPlayer
from motif_jax.envs.babyai.words import all_words
from motif_jax.envs.world import SeedStream, game_seed, to_row
from motif_jax.envs.worlds import make_world
from motif_jax.pages.blocks import drawn
from motif_jax.policies.language_policy import make_language_policy
from motif_jax.run import Run
from motif_jax.tokens import WordTokeniser
from motif_jax.transcripts.store import Transcripts


def config_of(**changes):
    config = get_config("glam_quickstart.py", "goto_small,demonstrations", **changes)
    config.collect.update({"transcripts": 60, "num_workers": 0, "games_per_worker": 4, "rollout_length": 8})
    config.language.update({"width": 16, "layers": 1})
    config.train_language.update({"num_epochs": 3, "learning_rate": 2e-2, "warmup_steps": 2, "packed": False})
    config.policy.language.hidden = 8
    return config


def games_of_bot(config, numbers):
    """[(prompt, action's name, number, step)] of the bot's games, and their returns."""
    world = make_world(config.env)
    game, bot, moments, returns = world.game(), BotPlayer(), [], []
    for number in numbers:
        seed = game_seed(config.seed, SeedStream.COLLECT, number)
        bot.begin(random.Random(seed.player))
        game.reset(seed, number)
        returns.append(0.0)
        while not game.end:
            action = bot.choose(game)
            shown = game.seen["prompt"].tobytes().rstrip(b"\0").decode()
            moments.append((shown, world.action_names[action], number, game.info().steps))
            returns[-1] += game.step(action)
    return moments, returns


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("demonstrations")
    experiment.run(config_of().to_dict(), workdir, ["collect"])
    return workdir


@pytest.mark.differs(
    "glam",
    there="a demonstration of the bot begins with the last observation of the episode before",
    here="a demonstration begins with its own first observation",
)
def test_every_moment_of_the_bot_s_games_is_recorded(recorded):
    transcripts = Transcripts(recorded / "transcripts")
    wanted, returns = games_of_bot(config_of(), range(60))
    episodes = [transcripts.episode(index) for index in np.flatnonzero(transcripts.info["step"] >= 0)]
    seen = [(*(turn.text for turn in one.turns), one.info["episode"], one.info["step"]) for one in episodes]
    assert seen == wanted
    for episode in episodes:
        np.testing.assert_allclose(episode.episode_return, returns[int(episode.info["episode"])], rtol=1e-6)
    (part,) = Run(recorded).sections()  # for the report
    assert "<b>60</b><span>games</span>" in drawn(part.blocks)
    texts = list(transcripts.texts())  # a new model's tokens have the words of rewordings, too
    assert WordTokeniser.from_texts(texts).text == WordTokeniser.from_texts([*texts, *all_words()]).text


def chances(config, workdir, moments):
    world = make_world(config.env)
    _, policy = make_language_policy(viewed(config), world, workdir)
    width = world.specs["prompt"].shape[0]
    observations = policy.encode({"prompt": np.stack([to_row(prompt, width) for prompt, *_ in moments])})
    first, core = np.zeros(len(moments), bool), np.zeros((len(moments), 0), np.float32)
    logits, *_ = policy.step(policy.params, policy.frozen, observations, first, core, ())
    taken = [world.action_names.index(action) for _, action, *_ in moments]
    return np.asarray(jax.nn.softmax(logits))[np.arange(len(moments)), taken]


def test_a_policy_that_starts_from_the_clone_does_what_the_bot_does(recorded):
    moments, _ = games_of_bot(config_of(), range(1000, 1020))  # others than it has read
    before = chances(config_of(policy__language__model=""), recorded, moments)
    experiment.run(config_of().to_dict(), recorded, ["train_language"])
    after = chances(config_of(), recorded, moments)
    assert before.mean() < 0.25  # of six actions
    assert after.mean() > 0.4
