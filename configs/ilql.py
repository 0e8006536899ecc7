"""ILQL (arXiv 2206.11871): offline reinforcement learning from conversations, here recorded text games.

    python -m motif_jax.launch --config=configs/ilql.py:wordle,ilql --workdir=runs/wordle

The argument is a world, then a recipe: wordle or maze; ilql, bc, filtered_bc, utterance_ilql, single_step, cql, psi,
awac, utterance_awac, monte_carlo, decision_transformer, chai, or one of them and +joint, as in ilql+joint; or grpo or
gigpo, which play. `:wordle,ilql,reference` has the hyperparameters of the published configs, and cloning's loss as a
mean over all tokens. The published runs cloned and learnt values at the same time, as ilql+joint does.

Downloads are not needed: scripted players make the transcripts, and the language model starts from random weights.
--config.transcripts.import_from=FILES, without the stage collect, reads other conversations. The model for Wordle has
the size of GPT-2 and needs a GPU; ilql_quickstart.py is for CPUs.

Time of `maze,ilql`: twenty minutes on one core. Expected over five seeds: every walk reaches the goal, with a return of
-7.5 [-8.3, -6.8]; the shortest ways have -6.7 (docs/results/wordle.md). Wordle at this size was not measured.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ml_collections import ConfigDict

from motif_jax.config.table import Text, table_of
from motif_jax.experiment import defaults
from motif_jax.offline.recipes import names, recipe_of
from motif_jax.stages.train_values import ValuesSection, unused_values
from motif_jax.structs import UserError

OTHERS = {  # published for dialogues alone; the same in other worlds
    "cql": {"learning_rate": 1e-4, "batch_size": 64, "conservative_weight": 0.1},
    "psi": {"learning_rate": 1e-5, "batch_size": 64, "conservative_weight": 0.0, "reward_scale": 0.1},
    "utterance_ilql": {"learning_rate": 1e-4, "batch_size": 64, "expectile": 0.9},
    "chai": {"learning_rate": 1e-5, "batch_size": 16, "conservative_weight": 0.1, "replies": 5},
    "decision_transformer": {"learning_rate": 1e-4, "batch_size": 64},
}


class Game(NamedTuple):
    """A world with its values, and the published hyperparameters for it, if there are any."""

    world: str
    set_values: Callable[[ConfigDict], None]
    cloning: Mapping[str, float] = {}  # of train_language, and of the recipes that clone
    ilql: Mapping[str, float] = {}  # and of its variants
    betas: Sequence[int] = ()
    as_published: Callable[[ConfigDict, str], None] = lambda config, recipe: None  # sets others, for a recipe


def get_config(argument: str = "wordle,ilql") -> ConfigDict:
    """The stages of ILQL, for a world, a recipe, and optionally `reference`."""
    world, _, words = argument.partition(",")
    Text(tuple(GAMES)).check("world", "--config", world)
    return config_of(GAMES[world], words)


def config_of(game: Game, argument: str) -> ConfigDict:
    """The stages for a game; `argument`: a recipe, by default ilql, and optionally `reference`."""
    words = [word for word in argument.split(",") if argument]
    reference = "reference" in words
    recipes = [word for word in words if word != "reference"] or ["ilql"]
    for word in recipes:
        Text(names()).check("recipe", "--config", word)
    if len(recipes) > 1:
        raise UserError(f"{argument!r} names {len(recipes)} recipes: choose one (--config)")
    if reference and not game.cloning:
        raise UserError(f"ILQL's authors published no configs for the world {game.world!r} (--config)")
    config = defaults()
    recipe = recipe_of(recipes[0])
    if reference and recipe.plays:
        raise UserError(f"ILQL's authors published no configs for the recipe {recipe.name!r} (--config)")
    config.stages = ("collect", "train_language", "train_values", "evaluate", "report")
    config.train_values.recipe = recipes[0]
    config.train_values.games = 256  # they choose the checkpoint by return, as the loss hardly predicts it

    # ---- decodings that fit the recipe
    config.decoding.kinds = "sample,rerank" if recipe.reranks else "sample,greedy"
    if not recipe.per_token:
        config.decoding.betas = "0"  # beta needs values of tokens
    config.evaluate.episodes = 1024  # for intervals that tell betas apart
    config.evaluate.replays = "toughest,best,worst"  # the best episode is over after one or two texts
    config.evaluate.num_workers = 0  # games are fast: the language model takes the time
    config.evaluate.games_per_worker = 256  # the model writes for many games at a time
    config.decoding.batch_size = 128

    game.set_values(config)
    if recipe.plays:
        by_playing(config)
    if reference:
        as_published(config, game, recipes[0])
    set_back_unused(config)
    return config


def by_playing(config: ConfigDict) -> None:
    """Rounds of games that the policy plays, in groups of eight that begin alike."""
    section = config.train_values
    section.batch_size, section.num_parts = 64, 1
    section.rounds, section.num_epochs, section.evaluate_every = 200, 1, 50
    section.learning_rate, section.warmup_steps = 1e-4, 0


def set_back_unused(config: ConfigDict) -> None:
    """Sets values without an effect on the recipe to their defaults, so that a run does not list them."""
    for name in unused_values(recipe_of(config.train_values.recipe), config.train_values):
        config.train_values[name] = table_of(ValuesSection)[name].default


def as_published(config: ConfigDict, game: Game, name: str) -> None:
    """Sets the values of the published configs for a recipe; a new model gets the size of GPT-2."""
    plain, recipe = name.partition("+")[0], recipe_of(name)
    values = game.cloning if plain in ("bc", "filtered_bc") else OTHERS.get(plain, game.ilql)
    for section, published in ((config.train_language, game.cloning), (config.train_values, values)):
        section.update(published)
        section.mean_over_all_tokens = True
        section.packed = False  # a batch is counted in episodes
        section.learning_rate_end = 1.0  # a constant learning rate, without warm-up and clipping
        section.warmup_steps = 0
        section.max_gradient_norm = 0.0
    config.train_values.discount, config.train_values.polyak = 0.99, 0.005
    config.language.width, config.language.layers, config.language.heads = 768, 12, 12

    config.train_values.games_beta = float(game.betas[0])
    if recipe.shifts:
        config.decoding.betas = ",".join(map(str, (0, *game.betas)))
    elif not recipe.reranks:
        config.decoding.betas = "0"
    if plain == "utterance_ilql":
        config.decoding.candidates = 4
    game.as_published(config, plain)


def wordle(config: ConfigDict) -> None:
    """503 words, and games by a player whose guess fits the answers so far in one of three turns, as in LMRL-Gym."""
    config.env.world = "wordle"
    config.env.options = '{"words": "larger"}'
    config.collect.collector = "candidate*0.33+random*0.67"
    config.collect.transcripts = 500_000
    config.transcripts.template = "marks"  # as in ILQL
    config.language.tokeniser = "letters"  # as the game's colours belong to letters
    config.language.width, config.language.layers, config.language.heads = 768, 12, 12  # GPT-2
    for section in (config.train_language, config.train_values):
        section.max_length = 148  # two games of six guesses, with the mark before them
        section.batch_size = 256  # large batches and a long warm-up, for a model of this size
        section.learning_rate = 1e-4  # as published for cloning
        section.num_epochs = 4
        section.warmup_steps = 500
        section.validation_share = 0.01  # 5,000 games
    config.train_values.expectile = 0.8  # V near the best recorded continuations
    config.decoding.max_tokens = 6  # five letters and the end mark
    config.evaluate.baselines = "candidate,optimal"


def wordle_as_published(config: ConfigDict, recipe: str) -> None:
    """Only tokens that are worse than V are shifted, down."""
    if recipe_of(config.train_values.recipe).shifts:
        config.decoding.clip = 0.0


def maze(config: ConfigDict) -> None:
    """LMRL-Gym's maze, from random walks, which cost 86 on average; the shortest ways cost 7 (docs/wordle.md)."""
    config.env.world = "maze"
    config.collect.collector = "random"
    config.collect.transcripts = 30_000  # of which few reach the goal from afar within `max_length`
    config.language.family = "llama"  # rotary positions: with learned ones, values did not see where the walk is
    config.language.width, config.language.layers, config.language.heads = 64, 2, 4
    for section in (config.train_language, config.train_values):
        section.max_length = 160  # about 17 moves; the longest walks (1,300) make updates slow
        section.warmup_steps = 50
        section.validation_share = 0.02
    config.train_language.batch_size, config.train_language.num_epochs = 32, 1
    config.train_language.learning_rate = 1e-3
    values = config.train_values
    values.batch_size, values.num_epochs = 24, 4
    values.learning_rate = 5e-4
    values.expectile = 0.8  # most recorded moves lead nowhere
    values.reward_scale = 20.0  # returns of a hundred moves, in numbers that a network learns
    values.value_max = 0.0  # no move is rewarded; without it, values drift upwards
    values.polyak = 0.06  # the values of far cells come through the targets, a token at a time
    values.evaluate_every = 2_000
    values.games = 32 if recipe_of(values.recipe).plays else 0  # 0: the last checkpoint, as each game has 100 moves
    config.decoding.max_tokens = 3  # a move
    if recipe_of(values.recipe).per_token:
        config.decoding.betas = "16,128"  # a move is worth 1/20
    config.evaluate.episodes = 104  # four from each cell, on average
    config.evaluate.baselines = "random,optimal"


GAMES = {
    "wordle": Game(
        "wordle",
        wordle,
        cloning={"learning_rate": 1e-4, "weight_decay": 0.01, "batch_size": 64},
        ilql={"learning_rate": 1e-5, "batch_size": 1024, "num_parts": 16, "expectile": 0.7,
              "conservative_weight": 1e-4},
        betas=(16,),
        as_published=wordle_as_published,
    ),
    "maze": Game("maze", maze),
}  # fmt: skip
