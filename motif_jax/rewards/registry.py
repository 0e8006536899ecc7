"""The registry of reward sources: parses `--config.policy.sources`, and finds the classes that it names.

    learnt,count:0.05,rnd:0.1,event_gold:0.2,code:rewards/gold.reward:0.1,my_package.my_module:MyBonus:0.2

The coefficient follows the name; that of `learnt` is `--config.policy.intrinsic_coefficient`. `event_NAME` is a reading
that the world makes of each step. `code:FILE` is a program (code/), whose coefficient is 1 unless it is given;
`code:write_reward` is the best program that this stage has written in the same workdir. Names are looked up here and
nowhere else. To add a source, write its module, and a line in SOURCES with its values of the config. Loads no JAX.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Collection, Iterable
from pathlib import PurePath
from typing import Any, NamedTuple

from motif_jax.config.table import Table, shown, tables_of
from motif_jax.envs.own_code import failure, guarded, load_class
from motif_jax.envs.world import suggest
from motif_jax.names import PROMPT_NETWORKS, import_named
from motif_jax.rewards.section import RewardsSection, SourcesConfig
from motif_jax.rewards.source import RewardSource
from motif_jax.structs import UserError
from motif_jax.system.errors import find_refusal

FLAG = "--config.policy.sources"
LEARNT, ONLINE = "learnt", "online"
GAME = "game"  # the world's own reward, in options
READING, PREFIX = "motif_jax.rewards.reading:Reading", "event_"  # a world's own reading of each step
RND = "motif_jax.rewards.rnd:RandomDistillation"
CODE, CODE_PREFIX = "motif_jax.rewards.code.source:CodeReward", "code"  # a program in a file
SUFFIX = ".reward"  # of a program's file
WRITTEN, BEST = "write_reward", f"best{SUFFIX}"  # the stage that writes programs, its directory, and its best program
STEM = re.compile(r"[A-Za-z0-9_]{1,60}")
MOST = 1e6  # limit for the absolute value of coefficients


class BuiltIn(NamedTuple):
    """A built-in source."""

    path: str  # module:Class
    title: str  # on pages, after "trained on"
    return_name: str = ""  # of its return in metrics; "": NAME_return
    in_replays: bool = False  # replays show its rewards


SOURCES = {
    LEARNT: BuiltIn("motif_jax.rewards.learnt_source:LearntSource", "the learnt reward", "intrinsic_return", True),
    "count": BuiltIn("motif_jax.rewards.count:CountBonus", "the count bonus"),
    "explore": BuiltIn("motif_jax.rewards.explore:Explore", "newly drawn squares"),
    "rnd": BuiltIn(RND, "random network distillation"),
    ONLINE: BuiltIn("motif_jax.rewards.online.source:OnlineSource", "a judge's answers", in_replays=True),
}
PATHS = {source.path for source in SOURCES.values()} | {READING, CODE}
CHECKS = {  # module:function of built-in sources that check more than the types of their values
    READING: "motif_jax.rewards.reading:check_choice",
    RND: "motif_jax.rewards.registry:check_distillation",
    CODE: "motif_jax.rewards.code.source:check_choice",
    SOURCES[ONLINE].path: "motif_jax.rewards.section:check_choice",
}
SECTIONS = tables_of(RewardsSection)
VALUES: Table = {f"{name}.{key}": value for name in SOURCES for key, value in SECTIONS.get(name, {}).items()}


class SourceChoice(NamedTuple):
    """One entry of the list."""

    name: str  # for metrics, results and checkpoints: the key of SOURCES, or the name of a class
    path: str  # module:Class
    coefficient: float = 1.0
    file: str = ""  # of a program; WRITTEN: that of the workdir

    def check(self, config: SourcesConfig, world: Any) -> None:
        """Raises UserError for a source that cannot be used. Imports only classes of the user, and no JAX."""
        if self.path in CHECKS:
            import_named(CHECKS[self.path])(self, config, world)
        elif self.path not in PATHS:
            find_class(self.path)


def check_distillation(choice: SourceChoice, config: SourcesConfig, world: Any) -> None:
    """See `SourceChoice.check`."""
    network = getattr(config.policy, "network", "")
    if network in PROMPT_NETWORKS:
        tokens = f"reads tokens, which the reward source {choice.name!r} cannot predict"
        raise UserError(f"the network {network!r} {tokens}: choose another one ({FLAG}, .options, .network)")


def parse_sources(text: str, learnt_coefficient: float) -> list[SourceChoice]:
    """Parses the list; leaves out `learnt` if its coefficient is 0, because a learnt reward is optional then."""
    choices: dict[str, SourceChoice] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        choice, number = parse_entry(part, FLAG)
        if choice.name == LEARNT:
            if number is not None:
                what = "the coefficient of the learnt reward is --config.policy.intrinsic_coefficient"
                raise UserError(f"{what}: write {LEARNT!r}, not {shown(part)} ({FLAG})")
            choice = choice._replace(coefficient=learnt_coefficient)
        elif number is None and choice.path != CODE:
            needed = shown(f"{part}:0.1")
            raise UserError(f"the reward source {shown(part)} needs a coefficient, as in {needed} ({FLAG})")
        if choice.name in choices:
            raise UserError(f"the reward source {shown(choice.name)} is named twice in {shown(text)} ({FLAG})")
        choices[choice.name] = choice
    return [choice for choice in choices.values() if choice.name != LEARNT or choice.coefficient]


def parse_entry(text: str, flag: str, known: Collection[str] = ()) -> tuple[SourceChoice, float | None]:
    """Parses NAME or NAME:COEFFICIENT; also returns the coefficient, None without one.

    `known`: further names: GAME, whose choice has no class, and the world's readings without their prefix.
    """
    whole = ":".join(map(str.strip, text.split(":")))
    name, _, last = whole.rpartition(":")
    number = to_number(last)
    needs_number = name in (*SOURCES, *known) or (_is_reading(name, known) and not last.isidentifier())
    if not name or (math.isnan(number) and not needs_number):
        return _find_choice(whole, flag, known), None
    if not abs(number) <= MOST:
        needed = f"must be a number from {-MOST:g} to {MOST:g}, not {shown(last)}"
        raise UserError(f"the coefficient of the reward source {shown(name)} {needed} ({flag})")
    return _find_choice(name, flag, known)._replace(coefficient=number), number


def to_number(text: str) -> float:
    """The number; NaN where there is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _is_reading(name: str, known: Collection[str]) -> bool:
    """Whether the name is a reading's, and not that of a module or a class; any is one if none are known."""
    word = name.removeprefix(PREFIX)
    return name in known or (name != word and ":" not in name and "." not in name and (not known or word in known))


def _find_choice(name: str, flag: str, known: Collection[str]) -> SourceChoice:
    if name in known and name == GAME:
        return SourceChoice(GAME, "")
    if _is_reading(name, known):
        return SourceChoice(PREFIX + name.removeprefix(PREFIX), READING)
    if name in SOURCES:
        return SourceChoice(name, SOURCES[name].path)
    if name.startswith(f"{CODE_PREFIX}:"):
        return _find_program(name.partition(":")[2], flag)
    if "." not in name and ":" not in name:
        names = [*known, *SOURCES]
        hint = suggest(name, names, f"choose from {', '.join(names)}, or a module:Class")
        raise UserError(f"unknown reward {shown(name)} ({flag}): {hint}")
    pieces = name.split(":")
    if len(pieces) != 2 or not all(word.isidentifier() for word in name.replace(":", ".").split(".")):
        raise UserError(f"a reward of your own is written as module:Class, not {shown(name)} ({flag})")
    return SourceChoice(pieces[1], name)


def _find_program(file: str, flag: str) -> SourceChoice:
    """A program, a FILE or `write_reward`; its file is not read yet."""
    if file == WRITTEN:
        return SourceChoice(f"{CODE_PREFIX}_written", CODE, file=file)
    stem = PurePath(file).name.removesuffix(SUFFIX)
    if not file.endswith(SUFFIX) or not STEM.fullmatch(stem) or not file.isprintable():
        raise UserError(
            f"a program is a file NAME{SUFFIX}, whose NAME has up to 60 letters, digits and underscores, as in "
            f"code:rewards/gold{SUFFIX}, or code:{WRITTEN}, not {shown(file)} ({flag})"
        )
    return SourceChoice(f"{CODE_PREFIX}_{stem}", CODE, file=file)


def without_folders(text: str) -> str:
    """A list of sources without the folders of programs, for what others read."""
    return re.sub(rf"\b{CODE_PREFIX}:[^,:]*/", f"{CODE_PREFIX}:", text)


def program_title(name: str) -> str:
    """The title of a program, "the program gold", from its name as a source; "" for other sources."""
    start, _, stem = name.partition("_")
    if name == f"{CODE_PREFIX}_written":
        return "the written program"
    return f"the program {stem}" if start == CODE_PREFIX and STEM.fullmatch(stem) else ""


def return_name(source: str) -> str:
    """The name of a source's return in metrics."""
    return (SOURCES[source].return_name if source in SOURCES else "") or f"{source}_return"


def shown_source(names: Iterable[str]) -> str:
    """The source whose rewards replays show: the learnt or the online one, or the first program; "" without them."""
    names = list(names)
    built_in = [name for name, source in SOURCES.items() if source.in_replays and name in names]
    return next(iter([*built_in, *filter(program_title, names)]), "")


def find_class(path: str) -> type[RewardSource]:
    """Imports the class of `module:Class`, which may load JAX; raises UserError if it does not exist."""
    source = load_class(path, "reward source", FLAG)
    if not (isinstance(source, type) and issubclass(source, RewardSource)):
        raise UserError(f"{shown(path)} is not a subclass of RewardSource ({FLAG})")
    return source


def user_code(path: str) -> contextlib.AbstractContextManager[None]:
    """A context for calls of a source: errors in a user's source become UserCodeError, others pass unchanged."""

    def explain(error: BaseException) -> UserError | None:
        own = path not in PATHS and not find_refusal(error)
        return failure(f"the reward source {path!r}", FLAG, error) if own else None

    return guarded(explain)
