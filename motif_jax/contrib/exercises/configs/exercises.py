"""GLAM's quickstart after exercises in reading, for rooms in which the goal must be read (docs/reading.md).

    python -m motif_jax.launch --config=exercises:goto_local --workdir=runs/reads

The argument is a level. The network has six layers, 106,000 parameters. Time: 47 minutes on one core, of which playing
takes seven. Expected over five seeds: success in 0.86 [0.84, 0.87] of the episodes, random play 0.30
(docs/results/reading.md).
"""

import runpy

from ml_collections import ConfigDict

from motif_jax.config.file import find_config
from motif_jax.structs import UserError


def get_config(argument: str = "goto_local") -> ConfigDict:
    """`glam_quickstart.py` with exercises before the manual's lessons."""
    quickstart = runpy.run_path(find_config("glam_quickstart"))
    if others := quickstart["ALONE"].intersection(argument.split(",")[1:]):
        raise UserError(f"{argument!r} names {min(others)!r}, which has no exercises (--config)")
    config = quickstart["get_config"](argument)
    config.transcripts.import_format = "exercises"
    reading = config.train_language
    reading.in_order = True  # easier kinds of exercises first
    reading.packed = False  # rows of about one length, as in the trials
    reading.max_length = 320  # prompts with many things, and two questions
    reading.batch_size = 32
    reading.learning_rate_end = 0.25  # high to the end, where lessons come
    config.language.layers = config.policy.language.layers = 6  # chosen in trials with four seeds
    policy = config.policy  # values chosen in trials with one seed
    policy.learning_rate = 2e-4
    policy.num_minibatches = 16
    policy.exploration_coefficient = 0.05
    policy.train_for_seconds = 0.0  # no limit: playing takes seven minutes on one core, reading much longer
    return config
