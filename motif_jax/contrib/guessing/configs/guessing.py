"""ILQL from dialogues about a picture: questions about scenes with eight attributes (docs/wordle.md).

    python -m motif_jax.launch --config=guessing:ilql --workdir=runs/guessing

The argument is a recipe of the config ilql, and optionally `reference`, for the hyperparameters of the published
configs, or `small`, for a few minutes on a CPU. A local world answers, or a server of the original. Downloads are not
needed; the paper's model started from GPT-2: --config.language.model=DIRECTORY --config.transcripts.template=lines.
"""

import runpy

from ml_collections import ConfigDict

from motif_jax.config.file import find_config

ILQL, QUICKSTART = (runpy.run_path(find_config(name)) for name in ("ilql", "ilql_quickstart"))


def get_config(argument: str = "ilql") -> ConfigDict:
    """The stages of ILQL in the world `guessing`."""
    words = argument.split(",")
    if "small" in words:
        return QUICKSTART["make_small"](get_config(",".join(word for word in words if word != "small")))
    return ILQL["config_of"](GUESSING, argument)


def dialogue(config: ConfigDict) -> None:
    """Half open, half yes-or-no questions."""
    config.env.world = "guessing"
    config.collect.collector = "asker:1,checker:1"
    config.collect.transcripts = 100_000
    config.language.width, config.language.layers, config.language.heads = 256, 4, 8  # small; the paper's was GPT-2
    config.decoding.max_tokens = 40  # for one question
    config.evaluate.baselines = "asker,checker"


def as_published(config: ConfigDict, recipe: str) -> None:
    """What the published configs set beside the hyperparameters."""
    config.train_language.max_length = config.train_values.max_length = 1024  # the longest dialogue
    if recipe in ("cql", "psi"):
        config.decoding.betas = "0,8"
    if recipe == "decision_transformer":
        config.decoding.wanted_return = -5.7


GUESSING = ILQL["Game"](
    "guessing",
    dialogue,
    cloning={"learning_rate": 1e-4, "batch_size": 256},
    ilql={"learning_rate": 1e-5, "batch_size": 64, "expectile": 0.8, "conservative_weight": 1.0},
    betas=(8, 16),
    as_published=as_published,
)
