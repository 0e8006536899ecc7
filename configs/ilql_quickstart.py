"""ILQL, small, on a CPU, with no download: Wordle with 40 words, a language model of letters from nothing.

    python -m motif_jax.launch --config=configs/ilql_quickstart.py --workdir=runs/ilql

A player that mostly repeats itself fills the transcripts, and its clone repeats itself as well: values can know better.
It takes seven to ten minutes on two cores. Over five seeds, the clone returned -3.8 and play with its values -2.3, or
-1.7 with the most probable letters (docs/ilql.md).
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict


def get_config(argument: str = "wordle,ilql") -> ConfigDict:
    """`ilql.py`, made small."""
    larger = runpy.run_path(str(Path(__file__).with_name("ilql.py")))
    config = larger["get_config"](argument)
    config.cpu_devices = 2  # small networks make better use of two cores this way
    config.env.options = '{"words": "small"}' if config.env.world == "wordle" else "{}"
    config.collect.transcripts = 50_000
    if config.env.world == "wordle":
        config.collect.collector = "repeat*0.6+candidate*0.4"
        config.train_language.max_length = config.train_values.max_length = 74  # the longest game
    config.language.width, config.language.layers, config.language.heads = 96, 2, 4
    # Small updates, but many in the time there is; it takes the clone thousands to make use of the colours.
    config.train_language.batch_size = 24
    config.train_language.learning_rate = 2e-3
    config.train_language.warmup_steps = 100
    config.train_language.num_epochs = 4
    config.train_language.save_every_s = 60.0
    config.train_values.batch_size = 24
    config.train_values.num_parts = 1
    config.train_values.learning_rate = 1e-3
    config.train_values.warmup_steps = 50
    config.train_values.num_epochs = 2
    # Values travel from the end of a text to its first letter, where it is chosen, one target at a time. Where targets
    # followed by 0.05, the first letters had no values yet after 650 updates (one trial).
    config.train_values.polyak = 0.5
    config.train_values.save_every_s = 60.0
    config.train_values.evaluate_every = 400
    config.train_values.games = 128
    config.train_values.validation_share = config.train_language.validation_share = 0.02
    config.evaluate.episodes = 512
    config.decoding.betas = "0,1,4,16" if config.decoding.betas != "0" else "0"
    larger["set_back_unused"](config)
    return config
