"""The values of the section `policy` that reward sources read, and the schedule of goals. Loads no JAX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from motif_jax.annotation.backends import CaptionBackend, find_backend
from motif_jax.annotation.section import AnnotateSection
from motif_jax.config.table import MANY_SECONDS, PATH, Flag, Number, Text, Use, Whole, shown, value
from motif_jax.devices.releases import check_saved
from motif_jax.envs.texts import texts_of
from motif_jax.names import ONLINE_REWARDS, find
from motif_jax.structs import UserError

AUTO = "auto"  # of `control.length`
MIXTURES = "mixtures"  # of `controller_chooses`


@dataclass(frozen=True)
class Options:
    """Options over rewards."""

    options: str = value(
        "",
        Text(longest=2000),
        "sums of rewards, one per option: gold:1,stairs:20,down=stairs+learnt:0.1 (docs/options.md); empty: none",
        decides=True,
    )
    controller: str = value("", Text(longest=1000), "sum of rewards for which the controller chooses", decides=True)
    controller_chooses: str = value("options", Text(("options", MIXTURES)), "single options, or mixtures", decides=True)


@dataclass(frozen=True)
class ControlSection:
    """The controller of options."""

    length: str = value(
        AUTO, Text(longest=20), "game steps per option: auto (the controller chooses, 1 to 128), a number", decides=True
    )
    discount: str = value(
        "decisions", Text(("decisions", "steps")), "the controller discounts per decision or step", decides=True
    )
    bootstrap_on_switch: bool = value(True, Flag(), "end an option's return where another follows it", decides=True)
    exploration: float = value(1.0, Number(0, 1e6), "decisions' exploration weight, relative to actions'", decides=True)
    anneal_exploration_to: float = value(
        1.0, Number(0, 1e6, above=True), "final share of it, at train_for_env_steps; exponential decay", decides=True
    )
    heads: str = value("in_effect", Text(("in_effect", "all")), "choices in the loss: in effect, or all", decides=True)
    coefficients: str = value(
        "0,0.25,0.5,0.75,1", Text(longest=200), "coefficients among which the controller chooses", decides=True
    )
    sum_to_one: bool = value(True, Flag(), "divide a mixture's coefficients by their sum", decides=True)


@dataclass(frozen=True)
class CountValues:
    """The source count: the n-th appearance in an episode is worth 1 / n^exponent."""

    of: str = value("event_message", Text(longest=100), "observation: event_message, position, crop, ...", decides=True)
    exponent: float = value(0.5, Number(0, 100), "exponent", decides=True)


@dataclass(frozen=True)
class DistillationValues:
    """The source rnd: random network distillation, which rewards novel observations."""

    learning_rate: float = value(1e-4, Number(0, 1, above=True), "of the predictor; one step per update", decides=True)
    hidden: int = value(128, Whole(1, 65536), "units of the hidden layers", decides=True)
    outputs: int = value(64, Whole(1, 65536), "outputs of the random network", decides=True)


# ---- the source online


# Kinds of online rewards that a judge's labels decide, and whether its questions compare two captions.
JUDGED = {"retrieval": False, "classification": False, "ranking": True}
KINDS = (*JUDGED, *ONLINE_REWARDS)
ORDERS = ("recency", "count", "uncertain")
SECTION = "--config.policy.online"  # flag
GOALS = f"{SECTION}.goals"


def asks_pairs(kind: str) -> bool:
    """Whether questions compare two captions instead of judging one."""
    return JUDGED.get(kind, False)


ANCHORED = Use(
    "policy.online.kind=ranking and .normalise=True",
    lambda section: asks_pairs(section["kind"]) and bool(section["normalise"]),
)


def is_anchored(section: Mapping[str, Any]) -> bool:
    """Whether a section `policy.online`, or the facts of a source, compares each caption with the neutral moment."""
    return ANCHORED.when(section) and section.get("anchor", "none") == "neutral"


@dataclass(frozen=True)
class OnlineValues:
    """The source online: a reward that is learnt during training from the judge of the section annotate."""

    kind: str = value(
        "retrieval",
        Text(KINDS),
        "retrieval: labels are looked up; words: closeness to the goal; others: a network",
        decides=True,
    )
    goals: str = value("defaultgoal@0", Text(longest=4000), "goals with their first steps: defaultgoal@0,gold@2000000")
    threshold: float = value(0.5, Number(0, 1, above=True, below=True), "probabilities above are worth 1", decides=True)
    floor: float = value(-0.5, Number(-1e6, 1e6), ".anchor=none or words: scores up to this are worth 0", decides=True)
    anchor: str = value(
        "neutral",
        Text(("neutral", "none")),
        "neutral: each caption is compared with a moment without a message, and only a better one is paid; none: pairs "
        "of captions are compared, and .floor decides what is paid",
        decides=True,
        differs="ONI's ranking compares each caption with a moment without a message, and pays only what is better",
        only_for=ANCHORED,
    )
    normalise: bool = value(
        True,
        Flag(),
        "ranking: False: the worth is the score; True: scores are related to .anchor, or to their running moments",
        decides=True,
        differs="with `anchor=none`, scores of ONI's ranking are normalised before they reward the agent, as the paper "
        "means",
    )
    init_from: str = value("", PATH, "workdir of a learnt reward, used until the judge has answered", decides=True)
    vectors: str = value("", PATH, "words: file of word vectors in the text format (.vec)", decides=True)
    order: str = value("recency", Text(ORDERS), "asked first: last seen (recency), most seen (count), least certain")
    labels_per_1000_steps: float = value(0.0, Number(0, 1e6), "maximum rate of questions; 0: as fast as answers come")
    queue: int = value(2_000, Whole(1, 10_000_000), "maximum queue length; others are dropped until seen again")
    attempts: int = value(3, Whole(1, 100), "attempts per question whose answers cannot be parsed")
    patience_s: float = value(30.0, Number(0.1, MANY_SECONDS), "seconds without answers until the judge counts as down")
    when_down: str = value("go_on", Text(("go_on", "stop")), "go_on: train without new labels until the judge is back")
    audit_every_steps: int = value(500_000, Whole(0, 10**15), "audit the online reward every N steps; 0 disables")
    capacity: int = value(1_000_000, Whole(1, 100_000_000), "maximum number of captions; 0.6 kB each", decides=True)
    # classification and ranking
    message: str = value("lt_cnn", Text(("lt_cnn", "lt_cnn_small")), "encoder of the networks", decides=True)
    learning_rate: float = value(1e-4, Number(0, 1, above=True), "learning rate of the networks", decides=True)
    batch_size: int = value(256, Whole(1, 65_536), "captions or pairs per update of the networks", decides=True)
    lessons_early: int = value(32, Whole(0, 100_000), "updates when labels arrive, until switch_at", decides=True)
    lessons_late: int = value(
        1, Whole(0, 100_000), "updates of the networks per update of the policy, from switch_at on", decides=True
    )
    switch_at: int = value(25_000, Whole(0, 10**12), "number of labels from which lessons_late applies", decides=True)
    pairs_per_update: int = value(
        10, Whole(1, 100_000), ".anchor=none: pairs to ask about per update of the policy", decides=True
    )
    sample: str = value("count", Text(("count", "distinct")), ".anchor=none: draw by count, or uniformly", decides=True)


class GoalTurn(NamedTuple):
    """A goal, and the first step at which the judge is asked about it."""

    goal: str
    step: int


Turns = tuple[GoalTurn, ...]


def parse_goals(text: str) -> Turns:
    """Parses a schedule such as "defaultgoal@0,gold@2000000"; goals may be sentences, with commas."""
    turns = [GoalTurn(goal.strip(), int(step)) for goal, step in re.findall(r"(.+?)@(\d{1,15})\s*(?:,|$)", text)]
    written = re.sub(r"\s", "", ",".join(f"{turn.goal}@{turn.step}" for turn in turns))
    steps = [turn.step for turn in turns]
    if steps[:1] != [0] or steps != sorted(set(steps)) or written != re.sub(r"\s|(?<=@)0+(?=\d)", "", text):
        schedule = "a schedule such as 'defaultgoal@0,gold@2000000', whose steps begin with 0 and rise"
        raise UserError(f"the goals must be {schedule}, not {shown(text)} ({GOALS})")
    return tuple(turns)


def turn_at(turns: Turns, step: int) -> int:
    """The index of the goal at a step."""
    return max(number for number, turn in enumerate(turns) if turn.step <= step)


def check_past(before: str, now: str, steps: int) -> None:
    """Raises UserError if two schedules of goals differ for the steps so far."""
    past, changed = ([turn for turn in parse_goals(text) if turn.step <= steps] for text in (before, now))
    if past != changed:
        trained = f"{steps:,} steps were trained with the goals {before!r}"
        raise UserError(f"{trained}: goals of later steps may change, goals of past steps may not ({GOALS})")


def judge_section(section: AnnotateSection, goal: str, patience_s: float) -> AnnotateSection:
    """The section `annotate` for a judge during training, with one goal."""
    return replace(section, goal=goal, samples=1, server=replace(section.server, patience_s=patience_s))


def check_choice(choice: Any, config: Any, world: Any) -> None:
    """See `SourceChoice.check`: values that do not work together."""
    section, texts = config.policy.online, texts_of(config.env, config.annotate.lexicon)
    judgeless = find(ONLINE_REWARDS, section.kind)
    turns = parse_goals(section.goals)
    try:
        if judgeless:
            judgeless.check(section, texts)
        else:
            backend = find_backend(config.annotate)
            if not issubclass(backend, CaptionBackend):
                what = f"the backend {config.annotate.backend!r} cannot be asked during training"
                raise UserError(f"{what}: choose model, vllm, server, judge or lexicon (--config.annotate.backend)")
            if len(turns) > 1 and backend.in_process and not backend.uses_jax:
                what = "a model in this process has one goal: use a server for several"
                raise UserError(f"{what} ({GOALS}, --config.annotate.backend=server)")
            for turn in turns:
                judge = judge_section(config.annotate, turn.goal, section.patience_s)
                backend(judge, texts, config.seed, not asks_pairs(section.kind)).check()
    except UserError as error:  # the goal is in the schedule here
        raise UserError(str(error).replace("--config.annotate.goal", GOALS)) from None
    check_saved(section.init_from, f"{SECTION}.init_from")


# ---- all of it


@dataclass(frozen=True)
class Repeatable:
    """Repeatable runs."""

    synchronous: bool = value(False, Flag(), "bit-identical runs, with at most one worker")


@dataclass(frozen=True)
class RewardsSection(Options, Repeatable):
    """Rewards of the agent."""

    sources: str = value(
        "learnt",
        Text(longest=1000),
        "reward sources beside the game: learnt,explore:0.01,online:0.4,count:0.05,rnd:0.1,code:gold.reward,my:My:0.2",
        decides=True,
    )
    extrinsic_coefficient: float = value(0.1, Number(-1e6, 1e6), "coefficient of the game's reward", decides=True)
    intrinsic_coefficient: float = value(
        0.1, Number(-1e6, 1e6), "coefficient of the learnt reward; 0: none needed", decides=True
    )
    reward_dir: str = value("", PATH, "workdir or checkpoints of the learnt reward; empty: this workdir", decides=True)
    reward_checkpoint: str = value("last", Text(longest=20), "last, best, or the number of an epoch", decides=True)
    reward_scale: float = value(0.1, Number(-1e6, 1e6), "scale of the game's reward, before clipping", decides=True)
    reward_clip: float = value(10.0, Number(0, above=True, infinite=True), "clip of the scaled reward, ±", decides=True)
    threshold_quantile: float = value(
        0.5, Number(high=1, infinite=True), "learnt rewards up to this quantile are 0; -1: keep all", decides=True
    )
    count_exponent: float = value(
        3.0, Number(0, infinite=True), "a message's n-th appearance in an episode is paid 1 / n^exponent", decides=True
    )
    pay: str = value(
        "reward",
        Text(("reward", "share")),
        "reward: the learnt reward above the quantile; share: its share of the best captions' reward (docs/motif.md)",
        decides=True,
    )
    reference_alignment: bool = value(
        False,
        Flag(),
        "as published: reward a message one step late, and the last one of an episode never",
        decides=True,
        differs="the learnt reward is credited to the step that caused the message, also to an episode's last step",
    )
    count: CountValues = field(default_factory=CountValues)
    rnd: DistillationValues = field(default_factory=DistillationValues)
    online: OnlineValues = field(default_factory=OnlineValues)
    control: ControlSection = field(default_factory=ControlSection)


class NamedSources(Protocol):
    """A stage's config, of which reward sources are asked for by name."""

    @property
    def env(self) -> Mapping[str, Any]: ...
    @property
    def policy(self) -> RewardsSection: ...


class SourcesConfig(NamedSources, Protocol):
    """A stage's config, from which reward sources are made."""

    @property
    def seed(self) -> int: ...
    @property
    def annotate(self) -> AnnotateSection: ...
