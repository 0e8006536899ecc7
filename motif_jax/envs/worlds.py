"""The config's section `env`: which world is played, and with which options."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motif_jax.config.table import Table, Text, flatten, shown, table_of, value
from motif_jax.envs.babyai.level_settings import SECTION, BabyAISettings
from motif_jax.envs.nethack.world import GameSettings
from motif_jax.envs.own_code import OPTIONS_FLAG, WORLD_FLAG, load_class, reported
from motif_jax.envs.world import CAPTIONS, World, is_text, space_of, suggest
from motif_jax.names import WORLDS, find
from motif_jax.structs import ArraySpec, EpisodeInfo, Meaning, UserError


@dataclass(frozen=True)
class WorldSection:
    """The game, in every stage."""

    world: str = value(
        "nethack",
        Text(tuple(WORLDS), own=True),
        "the game, or your own as module:Class (docs/games.md)",
        decides=True,
    )
    options: str = value("{}", Text(longest=4000), "options of text worlds and of module:Class, as JSON", decides=True)


TABLE: Table = table_of(WorldSection) | table_of(GameSettings) | table_of(BabyAISettings, SECTION)
# Names of other values in the lines, summaries and metrics of episodes; no figure of a world can have them.
TAKEN = (
    *EpisodeInfo._fields, "return", "intrinsic_return", "returns", "terms", "cause", "did", "count", "all",
    "share_death", "share_ended", "share_aborted",
)  # fmt: skip
NAMES = (tuple, list)
FORMS: dict[str, tuple[type, ...]] = {  # of the attributes of a world; a text would be read as a list of letters
    "name": (str,), "about": (str,), "action": (ArraySpec,), "figures": (Mapping,), "specs": (Mapping,),
    "action_names": NAMES, "reads": NAMES, "pairs": NAMES, "players": NAMES, "texts": (Path, type(None)),
}  # fmt: skip
SIDES = ("", "higher", "lower")
ALWAYS_RECORDED = (  # values of the section; others are omitted at their defaults
    "task", "screen", "max_episode_steps", "penalty_mode", "penalty_step", "character", "reference_time_limit",
    "reference_sober",
)  # fmt: skip


def make_world(env: Mapping[str, Any]) -> World:
    """Makes the world that the config's section `env`, or a record of it, names; by default NetHack."""
    name, options = env.get("world", "nethack"), parse_options(env.get("options", "{}"))
    made = load_class(name, "world", WORLD_FLAG) if ":" in name else find(WORLDS, name)
    if made is None:
        hint = suggest(name, WORLDS, f"choose from {', '.join(WORLDS)}, or name module:Class")
        raise UserError(f"unknown world {name!r} ({WORLD_FLAG}): {hint}")
    with reported(env):
        world: Any = _bind(made, options, env, name)()
        _check_interface(world, name)
    if ":" in name:
        with contextlib.suppress(AttributeError):  # of a class with slots
            world.known_as = name
    return world


def check_section(env: Mapping[str, Any]) -> None:
    """Raises UserError unless all values of `env`, which comes from outside, are in TABLE; any may be absent."""
    if not isinstance(env, Mapping):
        raise UserError(f'env must be an object such as {{"world": "wordle"}}, not {shown(env)} (--config.env)')
    given = dict(env)
    if isinstance(inner := given.get(SECTION), Mapping):  # not `flatten`, which leaves out what is empty
        del given[SECTION]
        given |= {f"{SECTION}.{name}": one for name, one in inner.items()}
    for name, one in given.items():
        if name not in TABLE:
            raise UserError(f"env has no value {shown(name)} (--config.env): {suggest(str(name), TABLE)}")
        TABLE[name].kind.check(name.rpartition(".")[2], f"--config.env.{name}", one)


def check_world(env: Mapping[str, Any]) -> World:
    """Makes the world and checks all that can be checked before games are started; returns it."""
    world = make_world(env)
    with reported(env):
        world.check()
    return world


def parse_options(text: str) -> dict[str, Any]:
    """Parses the JSON text of a world's options."""
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise UserError(f'options must be a JSON object such as {{"size": 5}}, not {shown(text)} ({OPTIONS_FLAG})')
    return options


def _bind(made: Any, options: dict[str, Any], env: Mapping[str, Any], name: str) -> Any:
    """Returns the call that makes a world with its options; raises UserError if it does not take them."""
    if of_section := getattr(made, "of_section", None):  # its settings are values of the section itself
        if options:
            raise UserError(f"the world {name!r} takes no options, not {next(iter(options))!r} ({OPTIONS_FLAG})")
        return functools.partial(of_section, env)
    if "max_episode_steps" in options:
        TABLE["max_episode_steps"].kind.check("max_episode_steps", OPTIONS_FLAG, options["max_episode_steps"])
    if "max_episode_steps" in env:
        options = {"max_episode_steps": env["max_episode_steps"], **options}
    try:
        inspect.signature(made).bind(**options)
    except TypeError as error:
        raise UserError(
            f"the world {name!r} cannot be made with {', '.join(options) or 'no options'}: {error} ({OPTIONS_FLAG})"
        ) from error
    return functools.partial(made, **options)


def _check_interface(world: World, name: str) -> None:
    """Raises UserError unless a user's world has all members of `World`, which some stages need only at their end."""
    methods = [key for key in vars(World) if callable(getattr(World, key)) and not key.startswith("_")]
    for key in (*World.__annotations__, *methods):
        # Not `hasattr`, which would hide an AttributeError raised in the user's code.
        if inspect.getattr_static(world, key, ...) is ...:
            raise UserError(f"the world {name!r} has no {key!r}, which envs/world.py requires ({WORLD_FLAG})")
        getattr(world, key)
    for key, kinds in FORMS.items():
        given = getattr(world, key)
        has_kind = isinstance(given, kinds)
        if not has_kind or (kinds == NAMES and not all(isinstance(name, str) for name in given)):
            wanted = "a tuple of names" if kinds == NAMES else " or ".join(kind.__name__ for kind in kinds)
            raise UserError(f"{key!r} of the world {name!r} must be {wanted}, not {shown(given)} ({WORLD_FLAG})")
    for key, spec in CAPTIONS.items():
        if world.specs.get(key) != spec:
            what = f"{shown(key)} as in CAPTIONS of envs/world.py, not {shown(world.specs.get(key))}"
            raise UserError(f"the world {name!r} must have the observation {what} ({WORLD_FLAG})")
    for key, spec in world.specs.items():
        if not isinstance(spec, ArraySpec):
            raise UserError(
                f"{shown(key)} in 'specs' of the world {name!r} is {shown(spec)}, no ArraySpec ({WORLD_FLAG})"
            )
    for key, kind in world.figures.items():
        if type(key) is not str or key in TAKEN or kind not in (bool, int, float):
            wanted = f"the name must not be taken, and it is a bool, int or float ({WORLD_FLAG})"
            raise UserError(f"the world {name!r} has a figure {key!r}: {wanted}")
    meanings = getattr(world, "meanings", ())
    for one in meanings if isinstance(meanings, NAMES) else [meanings]:
        is_meaning = isinstance(one, Meaning) and all(isinstance(text, str) for text in one[:5])
        if not (is_meaning and one.name in world.figures and one.better in SIDES):
            wanted = f"must be a Meaning (structs.py) of a figure, whose better side is higher or lower ({WORLD_FLAG})"
            raise UserError(f"{shown(one)} in 'meanings' of the world {name!r} {wanted}")
    space, single = space_of(world), is_text(world.action) or not world.action.shape
    if not (single if space is None else space.spec == world.action):
        wanted = "CHOICE, or text_action(), or the spec of its `action_space`"
        raise UserError(f"the action of the world {name!r} must be {wanted}, not {shown(world.action)} ({WORLD_FLAG})")


def essential(env: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of the section, or of a record of it, that decide the games, without most defaults.

    So records stay comparable when values are added. Nested sections are flattened to names such as `babyai.level`.
    """
    flat = flatten(dict(env))
    default = {name for name, value in flat.items() if name in TABLE and TABLE[name].default == value}
    free = {name for name, declared in TABLE.items() if not declared.decides}
    return {name: value for name, value in flat.items() if name in ALWAYS_RECORDED or name not in default | free}


def without_nethack(
    config: Mapping[str, Any], machine: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Removes NetHack's values and version from a config and a machine's metadata, if a user's world is played."""
    if ":" not in str(config["env"]["world"]):
        return config, machine
    versions = {name: version for name, version in machine.get("versions", {}).items() if name != "nle"}
    of_nethack = {
        "env": TABLE.keys() - {"world", "options", "max_episode_steps"},
        "collect": {"save_screen", "save_glyphs"},
        "reward": {"blstats", "crop", "glyphs"},
    }
    used = dict(config)
    for name in of_nethack.keys() & config.keys():
        used[name] = {key: value for key, value in config[name].items() if key not in of_nethack[name]}
    return used, {**machine, "versions": versions} if machine else machine


def title(env: Mapping[str, Any]) -> str:
    """Returns a short title of the game: the world's name, unless its class has a method `title`."""
    world = str(env.get("world", "nethack"))
    made = find(WORLDS, world)  # does not import a user's code
    return str(made.title(env)) if hasattr(made, "title") else world
