"""The stage train_values: learns the values of texts from transcripts, for a policy that train_language has made.

ILQL and related algorithms (`offline/recipes.py`): values per token or per utterance, which decoding adds to the
policy's logits. The result is in `values`: the policy in the Hugging Face layout, and checkpoints of the values.
This module is quick to import; learning.py trains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from motif_jax.config.table import PATH, Number, Text, Use, Whole, table_of
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.worlds import check_world
from motif_jax.language.config import FOLDER as FOLDER_OF_POLICY
from motif_jax.language.config import MODEL
from motif_jax.language.hub import read_config
from motif_jax.offline.recipes import GroupLearning, OfflineSection, Recipe, ValueTerms, deciding, names, recipe_of
from motif_jax.policies.decoding import DecodingSection, check_decoding, decoding_in_training
from motif_jax.stages import decisive_in, later, offline_stage
from motif_jax.stages.train_language import (
    MODEL_FLAG,
    CloningConfig,
    check_offline,
    check_template,
    check_trained,
    needs_model,
    needs_transcripts,
)
from motif_jax.structs import Need, UserError, refuse
from motif_jax.system.meeting import find_meeting

REPLIES = Use("chai", lambda recipe, _: recipe.of_replies)
GAMES = Use("positive games", lambda recipe, section: section.games > 0 and recipe.shifts)


@dataclass(frozen=True)
class TrainValues:
    """Values of texts, learnt from the same transcripts (--stage=train_values, docs/ilql.md)."""

    recipe: str = deciding("ilql", Text(names()), "the algorithm")
    policy: str = deciding("", PATH, "directory or GGUF file of a language model; empty: that of train_language")
    start: str = deciding(
        "policy",
        Text(("policy", "fresh_trunk", "fresh")),
        "initial value network: the policy, or a fresh trunk; fresh: the policy is untrained, too",
    )
    replies: int = deciding(4, Whole(1, 1000), "replies sampled in place of each text of the agent", only_for=REPLIES)
    games: int = deciding(
        0, Whole(0, 10**6), "games per evaluation, whose mean return selects the checkpoint; 0: keep the last"
    )
    games_beta: float = deciding(4.0, Number(0, 1e6), "factor of Q - V in these games", only_for=GAMES)


@dataclass(frozen=True)
class ValuesSection(OfflineSection, GroupLearning, ValueTerms, TrainValues):
    """The section train_values."""


@dataclass(frozen=True)
class ValuesConfig(CloningConfig):
    """The values that the stage reads."""

    decoding: DecodingSection = field(default_factory=DecodingSection)
    train_values: ValuesSection = ValuesSection()

    def decisive(self) -> set[str]:
        """Also the values by which texts are written in training; without those that the recipe does not use."""
        recipe = recipe_of(self.train_values.recipe)
        own = decisive_in(self, "", "transcripts", "language", "train_values")
        own -= {f"train_values.{name}" for name in unused_values(recipe, self.train_values)}
        own |= {"decoding.max_tokens"} if recipe.plays or recipe.of_replies else set()
        return own | ({"decoding.temperature"} if recipe.plays else set())


FOLDER = "values"


def unused_values(recipe: Recipe, section: ValuesSection) -> list[str]:
    """The values of the section that a recipe does not use."""
    uses = {name: declared.only_for for name, declared in table_of(ValuesSection).items()}
    return [name for name, use in uses.items() if use and not use.when(recipe, section)]


def check(config: ValuesConfig, workdir: Path) -> Iterator[Need]:
    """Raises UserError for values that cannot work; returns what is needed."""
    section = config.train_values
    recipe, flag = recipe_of(section.recipe), "--config.train_values"
    check_offline(config, section, "train_values")
    if recipe.plays:
        check_groups(config)
    new, name = section.start == "fresh", repr(section.recipe)
    refuse(
        (section.value_min >= section.value_max, f"value_min must be below value_max ({flag}.value_min, .value_max)"),
        (
            new and (section.policy or not recipe.learns_policy),
            "start 'new' needs a recipe that learns the policy, such as ilql+joint, and no directory of a policy "
            f"({flag}.start, .recipe, .policy)",
        ),
        (
            config.language.lora_rank and (recipe.learns_policy or section.start != "policy"),
            f"low-rank additions learn values that begin as a given policy, and not {name} with start "
            f"{section.start!r}: choose lora_rank 0 (--config.language.lora_rank, {flag}.recipe, .start)",
        ),
    )
    check_template(config.language, config.transcripts.template, section.policy, writes=True)
    if section.games:
        world = check_world(config.env)
        if not isinstance(world, TextWorld):
            raise UserError(f"the world {world.name!r} is not played by writing, but by actions ({flag}.games)")
        if recipe.shifts and not section.games_beta:
            raise UserError(f"beta 0 would play without the values, and choose the best by chance ({flag}.games_beta)")
        check_decoding(recipe, [decoding_in_training(recipe, config.decoding, section.games_beta)])
    if section.games or recipe.of_replies:
        check_texts_fit(config)
    return needs(config, workdir)


def needs(config: ValuesConfig, workdir: Path) -> Iterator[Need]:
    """The transcripts, and the policy."""
    section = config.train_values
    yield from needs_transcripts(config, workdir)
    flag = "--config.train_values.policy" if section.policy else MODEL_FLAG
    model = section.policy or config.language.model
    yield from needs_model(config, model, section, "train_values", flag, writes=True)
    if not model and section.start != "fresh":
        yield Need(lambda: check_rows_fit(config, workdir))


def check_rows_fit(config: ValuesConfig, workdir: Path) -> None:
    """Raises UserError if the policy that train_language has made, or will make, cannot read the rows."""
    made, flag = workdir / FOLDER_OF_POLICY / MODEL, "--config.train_language.max_length"
    limit, rows = config.train_language.max_length, config.train_values.max_length
    if made.is_dir():
        check_trained(read_config(made), str(made), rows, "train_values", flag)
    elif rows > limit:
        flags = f"--config.train_values.max_length, {flag}"
        raise UserError(f"the model of train_language reads {limit:,} tokens at most, and rows have {rows:,} ({flags})")


def check_groups(config: ValuesConfig) -> None:
    """Raises UserError for values with which the policy cannot play in groups."""
    section, decoding, flag = config.train_values, config.decoding, "--config.train_values"
    size, games = section.group_size, section.batch_size
    cannot = f"the recipe {section.recipe!r} cannot learn"
    refuse(
        (games % size, f"{cannot}: {games} games cannot be cut into groups of {size} ({flag}.batch_size, .group_size)"),
        (not section.games, f"{cannot}: it chooses its checkpoint by the return of games ({flag}.games)"),
        (find_meeting(config.distributed), f"{cannot}: it plays on one host ({flag}.recipe)"),
        (
            decoding.top_k or decoding.top_p != 1 or not decoding.temperature,
            f"{cannot}: any token may be drawn in its games: top_k must be 0, top_p 1, and temperature above 0 "
            "(--config.decoding.top_k, .top_p, .temperature)",
        ),
    )


def check_texts_fit(config: ValuesConfig) -> None:
    """Raises UserError if decoded texts do not fit into a model that is still to be made; others are known later."""
    section = config.train_values
    stage = "train_values" if section.start == "fresh" else "train_language"
    if config.language.model or section.policy or stage not in config.stages:
        return
    longest, text = getattr(config, stage).max_length, config.decoding.max_tokens
    if text >= longest:
        flags = f"--config.decoding.max_tokens, --config.{stage}.max_length"
        raise UserError(f"a text of {text:,} tokens and one before it do not fit into {longest:,} ({flags})")


STAGE = offline_stage(
    "train_values", FOLDER, config=ValuesConfig, sections=("train_values",), check=check,
    run=later("motif_jax.stages.train_values.learning:train"),
)  # fmt: skip
