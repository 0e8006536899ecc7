"""The values of `config.policy.online`, and the schedule of goals. Loads no JAX."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from motif_jax.annotation.backends import MODELS, check_backend
from motif_jax.annotation.prompts import goal_text
from motif_jax.annotation.texts import Texts
from motif_jax.config.table import MANY_SECONDS, PATH, Flag, Number, Table, Text, Value, Whole, shown
from motif_jax.structs import UserError

NETWORKS = ("classification", "ranking")  # kinds that teach one
WORDS = "words"  # the kind that asks no judge
KINDS = ("retrieval", *NETWORKS, WORDS)
ORDERS = ("recency", "count", "uncertain")
SECTION = "--config.policy.online"
GOALS = f"{SECTION}.goals"

TABLE: Table = {
    "online.kind": Value(Text(KINDS), decides=True, older="retrieval"),
    "online.goals": Value(Text(longest=4000), older="defaultgoal@0"),
    "online.threshold": Value(Number(0, 1, above=True, below=True), decides=True, older=0.5),
    "online.floor": Value(Number(-1e6, 1e6), decides=True, older=-0.5),
    "online.normalise": Value(
        Flag(),
        decides=True,
        older=True,
        differs="scores of ONI's ranking are normalised before they reward the agent, as was meant",
    ),
    "online.init_from": Value(PATH, decides=True, older=""),
    "online.vectors": Value(PATH, decides=True, older=""),
    # whom to ask, and when
    "online.order": Value(Text(ORDERS), older="recency"),
    "online.labels_per_1000_steps": Value(Number(0, 1e6), older=0.0),
    "online.queue": Value(Whole(1, 10_000_000), older=2_000),
    "online.attempts": Value(Whole(1, 100), older=3),
    "online.patience_s": Value(Number(0.1, MANY_SECONDS), older=30.0),
    "online.when_down": Value(Text(("go_on", "stop")), older="go_on"),
    "online.capacity": Value(Whole(1, 100_000_000), decides=True, older=1_000_000),
    # classification and ranking
    "online.message": Value(Text(("lt_cnn", "lt_cnn_small")), decides=True, older="lt_cnn"),
    "online.learning_rate": Value(Number(0, 1, above=True), decides=True, older=1e-4),
    "online.batch_size": Value(Whole(1, 65_536), decides=True, older=256),
    "online.lessons_early": Value(Whole(0, 100_000), decides=True, older=32),
    "online.lessons_late": Value(Whole(0, 100_000), decides=True, older=1),
    "online.switch_at": Value(Whole(0, 10**12), decides=True, older=25_000),
    "online.pairs_per_update": Value(Whole(1, 100_000), decides=True, older=10),
    "online.sample": Value(Text(("count", "distinct")), decides=True, older="count"),
}


class GoalTurn(NamedTuple):
    """From this step on, the judge is asked about this goal."""

    goal: str
    step: int


def parse_goals(text: str) -> tuple[GoalTurn, ...]:
    """Parses a schedule such as "defaultgoal@0,gold@2000000"; goals may be sentences, with commas."""
    found = [GoalTurn(goal.strip(), int(step)) for goal, step in re.findall(r"(.+?)@(\d{1,15})\s*(?:,|$)", text)]
    written = re.sub(r"\s", "", ",".join(f"{turn.goal}@{turn.step}" for turn in found))
    if not found or written != re.sub(r"\s|(?<=@)0+(?=\d)", "", text):
        raise UserError(
            f"the goals must be a schedule such as 'defaultgoal@0,gold@2000000', each with the step from which it is "
            f"pursued, not {shown(text)} ({GOALS})"
        )
    steps = [turn.step for turn in found]
    if steps[0] or steps != sorted(set(steps)):
        raise UserError(f"the steps of the goals must begin with 0 and rise, not {shown(text)} ({GOALS})")
    return tuple(found)


def turn_at(turns: tuple[GoalTurn, ...], step: int) -> int:
    """The number of the goal that is pursued at a step."""
    return max(number for number, turn in enumerate(turns) if turn.step <= step)


def check_past(before: str, now: str, steps: int) -> None:
    """Raises UserError if a schedule of goals differs for steps that are over."""
    past, changed = ([turn for turn in parse_goals(text) if turn.step <= steps] for text in (before, now))
    if past != changed:
        raise UserError(
            f"{steps:,} steps were trained with the goals {before!r}: goals of later steps may change, those before "
            f"may not ({GOALS})"
        )


def judge_section(config: ConfigDict, goal: str) -> ConfigDict:
    """The section `annotate` for a judge that is asked during training, about one goal."""
    section = config.annotate.copy_and_resolve_references()
    section.goal = goal
    section.server.patience_s = float(config.policy.online.patience_s)
    return section


def asks_pairs(kind: str) -> bool:
    """Whether the judge compares two captions rather than judging one."""
    return kind == "ranking"


def check_online(config: ConfigDict, texts: Texts) -> None:
    """Raises UserError for values that cannot work together, before anything is started."""
    section, backend = config.policy.online, config.annotate.backend
    turns = parse_goals(section.goals)
    if section.kind == WORDS:
        if not section.vectors:
            raise UserError(f"the kind 'words' needs a file of word vectors ({SECTION}.vectors)")
        if not Path(section.vectors).expanduser().is_file():
            raise UserError(f"there is no file {section.vectors!r} ({SECTION}.vectors)")
    elif backend not in (*MODELS, "lexicon"):
        raise UserError(
            f"the backend {backend!r} labels the pairs of a dataset, and cannot be asked during training: choose "
            f"{', '.join(MODELS)} or lexicon (--config.annotate.backend)"
        )
    if section.order == "uncertain" and section.kind not in NETWORKS:
        raise UserError(f"only a network can be uncertain, and {section.kind!r} has none ({SECTION}.order, .kind)")
    if section.init_from and not Path(section.init_from).expanduser().is_dir():
        raise UserError(f"there is no directory {section.init_from!r} ({SECTION}.init_from)")
    if backend == "vllm" and len(turns) > 1 and section.kind != WORDS:
        raise UserError(
            f"a model in this process is loaded for one goal: serve it, for a schedule of goals ({GOALS}; "
            "--config.annotate.backend=server)"
        )
    for turn in turns:
        try:
            if section.kind == WORDS:
                goal_text(texts, turn.goal)
            else:
                check_backend(judge_section(config, turn.goal), texts, not asks_pairs(section.kind))
        except UserError as error:
            raise UserError(str(error).replace("--config.annotate.goal", GOALS)) from None
