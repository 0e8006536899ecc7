"""ILQL, small, on a CPU, without downloads: Wordle with 40 words, and a new language model of letters.

    python -m motif_jax.launch --config=configs/ilql_quickstart.py --workdir=runs/ilql

The transcripts are games of a player that mostly repeats its words. Its clone does the same, and the values correct it.

Time: seven to ten minutes on two cores. Expected over five seeds: the clone returns -3.8, with values -2.3 sampled and
-1.7 greedy (docs/results/ilql.md).
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.offline.recipes import recipe_of

LARGER = runpy.run_path(str(Path(__file__).with_name("ilql.py")))


def get_config(argument: str = "wordle,ilql") -> ConfigDict:
    """`ilql.py` with small sizes."""
    return make_small(LARGER["get_config"](argument))


def make_small(config: ConfigDict) -> ConfigDict:
    """Sets the sizes for a CPU."""
    config.cpu_devices = 2  # XLA divides small programs badly among cores, and batches well
    if config.env.world == "maze":
        return config  # small already
    config.env.options = '{"words": "small"}' if config.env.world == "wordle" else "{}"
    config.collect.transcripts = min(config.collect.transcripts, 50_000)  # for a run of minutes
    if config.env.world == "wordle":
        config.collect.collector = "repeat*0.6+candidate*0.4"  # each turn by one of the two
        config.train_language.max_length = config.train_values.max_length = 74  # the longest game
    config.language.width, config.language.layers, config.language.heads = 96, 2, 4  # 234,000 parameters
    # Small batches, for more updates in the same time: the clone needs thousands to use the colours.
    config.train_language.batch_size = 24
    config.train_language.learning_rate = 2e-3  # high, for a small network
    config.train_language.warmup_steps = 100
    config.train_language.num_epochs = 4
    config.train_language.save_every_s = 60.0  # of a few minutes
    config.train_values.batch_size = 24
    config.train_values.num_parts = 1  # a small batch fits into memory
    config.train_values.learning_rate = 1e-3
    config.train_values.warmup_steps = 50
    config.train_values.num_epochs = 2
    # Values move from the end of a text to its first letter one target at a time, so targets must follow quickly. With
    # 0.05, the first letters were still without values after 650 updates (one trial).
    config.train_values.polyak = 0.5
    config.train_values.save_every_s = 60.0
    config.train_values.evaluate_every = 400  # several checkpoints to choose from
    config.train_values.games = 128  # fewer than ilql.py's: games take a larger share of a short run
    config.train_values.validation_share = config.train_language.validation_share = 0.02
    if recipe_of(config.train_values.recipe).plays:
        LARGER["by_playing"](config)
        config.train_values.learning_rate = 1e-3  # high, for a small network
        config.train_values.rounds = 300
    config.evaluate.episodes = 512  # half of ilql.py's
    config.decoding.betas = "0,1,4,16" if config.decoding.betas != "0" else "0"
    LARGER["set_back_unused"](config)
    return config
