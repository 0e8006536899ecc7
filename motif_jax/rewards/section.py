"""The values of the section `policy` that reward sources read, and the schedule of goals. Loads no JAX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from motif_jax.annotation.backends import Oracle, check_backend, find_backend, make_judge, needs_of
from motif_jax.annotation.section import AnnotateSection
from motif_jax.config.table import (
    MANY_SECONDS,
    PATH,
    Flag,
    Number,
    SourcesText,
    Text,
    Use,
    Whole,
    deciding,
    shown,
    value,
)
from motif_jax.devices.releases import needs_saved
from motif_jax.envs.texts import texts_of
from motif_jax.names import ONLINE_REWARDS, find
from motif_jax.structs import Need, UserError


@dataclass(frozen=True)
class CountValues:
    """The source count: the n-th appearance in an episode is worth 1 / n^exponent."""

    of: str = deciding("event_message", Text(longest=100), "observation: event_message, position, crop, ...")
    exponent: float = deciding(0.5, Number(0, 100), "exponent")


@dataclass(frozen=True)
class DistillationValues:
    """The source rnd: random network distillation, which rewards novel observations."""

    learning_rate: float = deciding(1e-4, Number(0, 1, above=True), "of the predictor; one step per update")
    hidden: int = deciding(128, Whole(1, 65536), "units of the hidden layers")
    outputs: int = deciding(64, Whole(1, 65536), "outputs of the random network")


# ---- the source online


class Judged(NamedTuple):
    """A kind of online reward that a judge's labels decide."""

    kind: str  # module:Class, an `OnlineKind`
    asks_pairs: bool  # questions compare two captions instead of judging one
    has_network: bool  # which can say of which question it is least certain


JUDGED = {
    "retrieval": Judged("motif_jax.rewards.online.kinds:OnlineKind", asks_pairs=False, has_network=False),
    "classification": Judged("motif_jax.rewards.online.kinds:Classification", asks_pairs=False, has_network=True),
    "ranking": Judged("motif_jax.rewards.online.kinds:Ranking", asks_pairs=True, has_network=True),
}
KINDS = (*JUDGED, *ONLINE_REWARDS)
ORDERS = ("recency", "count", "uncertain")
SECTION = "--config.policy.online"  # flag
GOALS, GOAL = f"{SECTION}.goals", "--config.annotate.goal"  # a schedule; where it is empty, the only goal


def asks_pairs(kind: str) -> bool:
    """Whether questions compare two captions instead of judging one."""
    return kind in JUDGED and JUDGED[kind].asks_pairs


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

    kind: str = deciding(
        "retrieval", Text(KINDS), "retrieval: labels are looked up; classification, ranking: a network"
    )
    goals: str = value(
        "", Text(longest=4000), "goals with their first steps: defaultgoal@0,gold@2000000; empty: annotate.goal"
    )
    threshold: float = deciding(0.5, Number(0, 1, above=True, below=True), "probabilities above are worth 1")
    floor: float = deciding(-0.5, Number(-1e6, 1e6), ".anchor=none: scores up to this are worth 0")
    anchor: str = deciding(
        "neutral",
        Text(("neutral", "none")),
        "neutral: each caption is compared with a moment without a message, and only a better one is paid; none: pairs "
        "of captions are compared, and .floor decides what is paid",
        differs="ONI's ranking compares each caption with a moment without a message, and pays only what is better",
        only_for=ANCHORED,
    )
    normalise: bool = deciding(
        True,
        Flag(),
        "ranking: False: the worth is the score; True: scores are related to .anchor, or to their running moments",
        differs="with `anchor=none`, scores of ONI's ranking are normalised before they reward the agent, as the paper "
        "means",
    )
    init_from: str = deciding("", PATH, "workdir of a learnt reward, used until the judge has answered")
    order: str = value("recency", Text(ORDERS), "asked first: last seen (recency), most seen (count), least certain")
    labels_per_1000_steps: float = value(0.0, Number(0, 1e6), "maximum rate of questions; 0: as fast as answers come")
    queue: int = value(2_000, Whole(1, 10_000_000), "maximum queue length; others are dropped until seen again")
    attempts: int = value(3, Whole(1, 100), "attempts per question whose answers cannot be parsed")
    patience_s: float = value(30.0, Number(0.1, MANY_SECONDS), "seconds without answers until the judge counts as down")
    when_down: str = value("continue", Text(("continue", "stop")), "continue: train on, without new labels")
    capacity: int = deciding(1_000_000, Whole(1, 100_000_000), "maximum number of captions; 0.6 kB each")
    # classification and ranking
    message: str = deciding("lt_cnn", Text(("lt_cnn", "lt_cnn_small")), "encoder of the networks")
    learning_rate: float = deciding(1e-4, Number(0, 1, above=True), "learning rate of the networks")
    batch_size: int = deciding(256, Whole(1, 65_536), "captions or pairs per update of the networks")
    updates_early: int = deciding(32, Whole(0, 100_000), "updates when labels arrive, until switch_at")
    updates_late: int = deciding(
        1, Whole(0, 100_000), "updates of the networks per update of the policy, from switch_at on"
    )
    switch_at: int = deciding(25_000, Whole(0, 10**12), "number of labels from which updates_late applies")
    pairs_per_update: int = deciding(10, Whole(1, 100_000), ".anchor=none: pairs to ask about per update of the policy")
    sample: str = deciding("count", Text(("count", "distinct")), ".anchor=none: draw by count, or uniformly")


def online_section(config: SourcesConfig) -> OnlineValues:
    """The section `policy.online`, in which `goals` is a schedule: where it is empty, of `annotate.goal` alone."""
    section = config.policy.online
    return replace(section, goals=section.goals or f"{config.annotate.goal}@0")


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
        raise UserError(f"the goals must be {schedule}, not {shown(text)} ({GOALS}, {GOAL})")
    return tuple(turns)


def turn_at(turns: Turns, step: int) -> int:
    """The index of the goal at a step."""
    return max(number for number, turn in enumerate(turns) if turn.step <= step)


def check_past(before: str, now: str, steps: int) -> None:
    """Raises UserError if two schedules of goals differ for the steps so far."""
    past, changed = ([turn for turn in parse_goals(text) if turn.step <= steps] for text in (before, now))
    if past != changed:
        trained = f"{steps:,} steps were trained with the goals {before!r}"
        raise UserError(f"{trained}: goals of later steps may change, goals of past steps may not ({GOALS}, {GOAL})")


def judge_section(section: AnnotateSection, goal: str, patience_s: float) -> AnnotateSection:
    """The section `annotate` for a judge during training, with one goal."""
    return replace(section, goal=goal, samples=1, server=replace(section.server, patience_s=patience_s))


def check_online(config: Any) -> None:
    """Raises UserError for values that do not work together."""
    section, texts = online_section(config), texts_of(config.env, config.annotate.lexicon)
    judgeless = find(ONLINE_REWARDS, section.kind)
    if section.order == "uncertain" and not (section.kind in JUDGED and JUDGED[section.kind].has_network):
        raise UserError(f"the order uncertain needs a network, which {section.kind!r} lacks ({SECTION}.order, .kind)")
    turns = parse_goals(section.goals)
    if judgeless:
        judgeless.check(config, texts)
        return
    backend = find_backend(config.annotate)
    if issubclass(backend, Oracle):
        what = f"the backend {config.annotate.backend!r} cannot be asked during training"
        raise UserError(f"{what}: choose model, vllm, server, judge or lexicon (--config.annotate.backend)")
    if len(turns) > 1 and backend.in_process and not backend.uses_jax:
        what = "a model in this process has one goal: use a server for several"
        raise UserError(f"{what} ({GOALS}, --config.annotate.backend=server)")
    for turn in turns:
        judge = judge_section(config.annotate, turn.goal, section.patience_s)
        check_backend(make_judge(judge, texts, config.seed, not asks_pairs(section.kind)))


def needs_of_online(config: Any) -> list[Need]:
    """The judge's files, and the reward that is used at first."""
    section, needs = config.policy.online, []
    if find(ONLINE_REWARDS, section.kind) is None:
        texts = texts_of(config.env, config.annotate.lexicon)
        needs = needs_of(make_judge(config.annotate, texts, config.seed, not asks_pairs(section.kind)))
    return [*needs, *needs_saved(section.init_from, "reward", f"{SECTION}.init_from")]


# ---- all of it


@dataclass(frozen=True)
class Repeatable:
    """Repeatable runs."""

    synchronous: bool = value(False, Flag(), "bit-identical runs, with at most one worker; schedules count steps alone")


@dataclass(frozen=True)
class RewardsSection(Repeatable):
    """Rewards of the agent."""

    sources: str = deciding(
        "learnt",
        SourcesText(longest=1000),
        "reward sources beside the game: learnt,explore:0.01,online:0.4,count:0.05,rnd:0.1,my:My:0.2",
    )
    extrinsic_coefficient: float = deciding(0.1, Number(-1e6, 1e6), "coefficient of the game's reward")
    intrinsic_coefficient: float = deciding(0.1, Number(-1e6, 1e6), "coefficient of the learnt reward; 0: none needed")
    reward_dir: str = deciding("", PATH, "workdir or checkpoints of the learnt reward; empty: this workdir")
    reward_checkpoint: str = deciding("last", Text(longest=20), "last, best, or the number of an epoch")
    reward_scale: float = deciding(0.1, Number(-1e6, 1e6), "scale of the game's reward, before clipping")
    reward_clip: float = deciding(10.0, Number(0, above=True, infinite=True), "clip of the scaled reward, ±")
    threshold_quantile: float = deciding(
        0.5, Number(high=1, infinite=True), "learnt rewards up to this quantile are 0; -1: keep all"
    )
    count_exponent: float = deciding(
        3.0, Number(0, infinite=True), "a message's n-th appearance in an episode is paid 1 / n^exponent"
    )
    intrinsic_form: str = deciding(
        "thresholded",
        Text(("thresholded", "relative")),
        "thresholded: the learnt reward above the quantile; relative: divided by that of the best captions "
        "(docs/motif.md)",
    )
    reference_alignment: bool = deciding(
        False,
        Flag(),
        "as published: reward a message one step late, and the last one of an episode never",
        differs="the learnt reward is credited to the step that caused the message, also to an episode's last step",
    )
    count: CountValues = field(default_factory=CountValues)
    rnd: DistillationValues = field(default_factory=DistillationValues)
    online: OnlineValues = field(default_factory=OnlineValues)


class NamedSources(Protocol):
    """A stage's config, of which reward sources are asked for by name."""

    @property
    def env(self) -> Mapping[str, Any]: ...
    @property
    def policy(self) -> RewardsSection: ...
    @property
    def plugins(self) -> Mapping[str, Any]: ...  # their sections


class SourcesConfig(NamedSources, Protocol):
    """A stage's config, from which reward sources are made."""

    @property
    def seed(self) -> int: ...
    @property
    def annotate(self) -> AnnotateSection: ...
