"""The stage train_values: learns from transcripts what texts are worth, beside a policy that train_language has made.

ILQL and its relatives (`offline/recipes.py`): values per token or per utterance, which decoding then adds to the
policy's logits. The result lies in `values`: the policy as the Hugging Face Hub has it, and checkpoints of the values.
This module is quick to import; learning.py trains.
"""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.config.table import (
    MANY_SECONDS,
    PATH,
    Flag,
    Number,
    Tables,
    Text,
    Value,
    Whole,
    check_values,
    describe_changed,
)
from motif_jax.console import print_line
from motif_jax.envs.settings import TABLE as ENV
from motif_jax.envs.settings import check_world
from motif_jax.envs.text_world import TextWorld
from motif_jax.offline.recipes import names, recipe_of
from motif_jax.offline.settings import OPTIMIZER, VALUES, check_num_parts, unused_values
from motif_jax.policies.decoding import TABLE as DECODING
from motif_jax.policies.decoding import check_decoding, decoding_in_training
from motif_jax.stages import EXPERIMENT, Stage, is_distributed, with_result
from motif_jax.stages.train_language import TABLES as LANGUAGE
from motif_jax.stages.train_language.data import check_template
from motif_jax.structs import UserError
from motif_jax.system.files import read_json
from motif_jax.system.meeting import find_meeting

TABLES: Tables = {
    "train_values": {
        "recipe": Value(Text(names()), decides=True, older="ilql"),
        "policy": Value(PATH, decides=True, older=""),
        "start": Value(Text(("policy", "new_trunk", "new")), decides=True, older="policy"),
        "best_share": Value(Number(0, 1, above=True), decides=True, older=0.2),
        **VALUES,
        "replies": Value(Whole(1, 1000), decides=True, older=4),
        "batch_size": Value(Whole(1, 2**20), decides=True, older=64),
        "num_parts": Value(Whole(1, 2**10), older=1),
        "chunk": Value(Whole(0), older=0),
        "max_length": Value(Whole(2, 2**20), decides=True, older=256),
        "packed": Value(Flag(), decides=True, older=True),
        "validation_share": Value(Number(0, 1, above=True, below=True), decides=True, older=0.05),
        **OPTIMIZER,
        "games": Value(Whole(0, 10**6), decides=True, older=0),
        "games_beta": Value(Number(0), decides=True, older=4.0),
        "num_epochs": Value(Whole(1, 10**6), older=1),
        "log_every": Value(Whole(1), older=50),
        "evaluate_every": Value(Whole(0), older=0),
        "save_every_s": Value(Number(0, MANY_SECONDS, above=True), older=300.0),
        "keep_checkpoints": Value(Whole(1), older=2),
    },
}
READS: Tables = (
    EXPERIMENT | {"env": ENV, "decoding": DECODING} | {name: LANGUAGE[name] for name in ("transcripts", "language")}
    | TABLES
)  # fmt: skip
FOLDER = "values"


def more_identity(config: ConfigDict) -> tuple[str, ...]:
    """The values of other sections that decide the result: replies that are learnt from are as long as decoding's."""
    return ("decoding.max_tokens",) if recipe_of(config.train_values.recipe).values == "reply" else ()


def unused(config: ConfigDict) -> list[str]:
    """The values that make no difference to the recipe, and so may change within a workdir."""
    section = config.train_values
    return [f"train_values.{name}" for name in unused_values(recipe_of(section.recipe), section)]


def artefacts(workdir: Path) -> list[Path]:
    """The directory of the values."""
    return with_result(workdir / FOLDER, "summary.json")


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Whether the values were trained for as many epochs as the config asks."""
    try:
        return int(read_json(workdir / FOLDER / "summary.json")["epoch"]) >= config.train_values.num_epochs
    except (OSError, ValueError, KeyError, TypeError):
        return False


def check(config: ConfigDict) -> None:
    """Raises UserError for values that cannot work."""
    check_values(config, READS)
    section = config.train_values
    recipe = recipe_of(section.recipe)
    check_num_parts(section, "train_values")
    if section.value_min >= section.value_max:
        raise UserError(
            f"value_min {section.value_min} is not below value_max, {section.value_max} "
            "(--config.train_values.value_min, .value_max)"
        )
    if section.policy and not Path(section.policy).is_dir():
        raise UserError(
            f"there is no directory {section.policy!r} with a language model (--config.train_values.policy)"
        )
    if section.start == "new" and not recipe.policy:
        raise UserError(
            f"the recipe {section.recipe!r} does not learn the policy, which so cannot be new: choose "
            f"{section.recipe}+joint, or another start (--config.train_values.recipe, .start)"
        )
    if section.start == "new" and section.policy:
        raise UserError("the policy is either new or read from a directory (--config.train_values.start, .policy)")
    flag = "--config.train_values.policy" if section.policy else "--config.language.model"
    check_template(config.language, config.transcripts.template, flag, section.policy, writes=True)
    if section.games:
        world = check_world(config.env)
        if not isinstance(world, TextWorld):
            raise UserError(
                f"games of {world.name!r} cannot be played by writing, to see what values are worth "
                "(--config.train_values.games)"
            )
        if recipe.decoding == "shift" and not section.games_beta:
            raise UserError("beta 0 would play without the values (--config.train_values.games_beta)")
        played = decoding_in_training(recipe, config.decoding, section.games_beta)
        check_decoding(recipe, section.recipe, [played])
    if section.games or recipe.values == "reply":
        check_texts_fit(config)
    find_meeting(config.distributed)  # which checks it


def check_texts_fit(config: ConfigDict) -> None:
    """Raises UserError if no text of the length that is decoded would ever fit into a model that is yet to be made.

    What a directory's model reads is known once it is opened.
    """
    check_values(config, {name: LANGUAGE[name] for name in ("language", "train_language")})
    section = config.train_values
    stage = "train_values" if section.start == "new" else "train_language"
    if config.language.model or section.policy or stage not in config.stages:
        return
    longest, text = config[stage].max_length, config.decoding.max_tokens
    if text >= longest:
        raise UserError(
            f"a text of {text:,} tokens does not fit into the {longest:,} that the model reads, after at least one of "
            f"the conversation (--config.decoding.max_tokens, --config.{stage}.max_length)"
        )


def run(config: ConfigDict, workdir: Path) -> None:
    """Trains the values and writes `workdir/values`."""
    from motif_jax.stages.train_values.learning import train

    section = config.train_values
    names = unused_values(recipe_of(section.recipe), section)
    said = describe_changed("train_values", TABLES["train_values"], section, names)
    if said and not config.distributed.process_id:
        print_line(f"train_values: the recipe {section.recipe!r} makes no use of {said}")
    train(config, workdir, workdir / FOLDER)


STAGE = Stage(
    tables=TABLES,
    reads=READS,
    identity=("", "transcripts", "language", "train_values"),
    check=check,
    is_complete=is_complete,
    run=run,
    makes=("values",),
    writes="--config.train_values.keep_checkpoints",
    memory="--config.train_values.batch_size, .max_length",
    device_memory="--config.train_values.num_parts, .chunk, .max_length, .batch_size",
    artefacts=artefacts,
    shared=is_distributed,
    more_identity=more_identity,
    unused=unused,
)
