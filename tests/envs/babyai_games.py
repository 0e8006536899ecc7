"""Games of BabyAI-Text for tests: how they are made, begun, and played by the bot."""

import random

from motif_jax.envs.babyai.game import BabyAIGame, BotPlayer
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.envs.worlds import make_world

MIXED = "MixedTrainLocal"


def make(level: str = "GoToLocal", **values):
    return make_world({"world": "babyai", "babyai": {"level": level, **values}})


def begin(game: BabyAIGame, episode: int, stream: SeedStream = SeedStream.TRAIN) -> None:
    game.reset(game_seed(0, stream, episode), episode)


def play_by_bot(game: BabyAIGame, episode: int) -> list[int]:
    """An episode of the scripted player `bot`; returns its actions."""
    player, actions = BotPlayer(), []
    player.begin(random.Random(episode))
    begin(game, episode)
    while not game.end:
        actions.append(player.choose(game))
        game.step(actions[-1])
    return actions
