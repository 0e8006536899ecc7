"""ILQL from comments on posts, scored by a lexicon, or by a table or a server (docs/wordle.md).

    python -m motif_jax.launch --config=comments:ilql --workdir=runs/comments

The argument is a recipe of the config ilql, and optionally `reference`, for the hyperparameters of the published
configs, or `small`, for a few minutes on a CPU. Downloads are not needed; the paper's model started from GPT-2:
--config.language.model=DIRECTORY --config.transcripts.template=lines.
"""

import runpy

from ml_collections import ConfigDict

from motif_jax.config.file import find_config

ILQL, QUICKSTART = (runpy.run_path(find_config(name)) for name in ("ilql", "ilql_quickstart"))


def get_config(argument: str = "ilql") -> ConfigDict:
    """The stages of ILQL in the world `comments`."""
    words = argument.split(",")
    if "small" in words:
        return QUICKSTART["make_small"](get_config(",".join(word for word in words if word != "small")))
    return ILQL["config_of"](COMMENTS, argument)


def comments(config: ConfigDict) -> None:
    """Half of the recorded comments are kind, half are rude, so that values can tell them apart."""
    config.env.world = "comments"
    config.collect.collector = "kind:1,rude:1"
    config.collect.transcripts = 100_000
    config.language.width, config.language.layers, config.language.heads = 256, 4, 8  # small; the paper's was GPT-2
    config.train_language.max_length = config.train_values.max_length = 128  # for a post and its comment
    config.evaluate.baselines = "kind,rude"


def as_published(config: ConfigDict, recipe: str) -> None:
    """What the published configs set beside the hyperparameters."""
    config.train_language.max_length = config.train_values.max_length = 512
    config.decoding.max_tokens = 256


COMMENTS = ILQL["Game"](
    "comments",
    comments,
    cloning={"learning_rate": 1e-4, "batch_size": 64},
    ilql={"learning_rate": 1e-4, "batch_size": 64, "expectile": 0.6, "conservative_weight": 0.25},
    betas=(8,),
    as_published=as_published,
)
