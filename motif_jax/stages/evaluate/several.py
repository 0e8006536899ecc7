"""Evaluation in several variations of the games, each of which is written down as if it were a protocol of its own."""

from __future__ import annotations

from ml_collections import ConfigDict

from motif_jax.envs.babyai.variations import FLAG, is_for_scripted, parse_variation, split_variations
from motif_jax.envs.protocols import TASK, by_protocol
from motif_jax.envs.settings import check_world, make_world
from motif_jax.envs.world import World
from motif_jax.structs import UserError


def check_variations(config: ConfigDict, world: World) -> None:
    """Raises UserError for variations that cannot be played."""
    names = split_variations(config.evaluate.variations)
    if names and (world.name != "babyai" or config.evaluate.protocol != TASK):
        raise UserError(
            f"variations are of the world 'babyai', and not of {world.name!r} by the rules of "
            f"{config.evaluate.protocol!r} ({FLAG}, --config.env.world, --config.evaluate.protocol)"
        )
    for varied in with_variations(config)[1:]:
        check_world(by_protocol(varied).env)


def with_variations(config: ConfigDict) -> list[ConfigDict]:
    """The config itself, and one for each variation: `protocol` is then its name.

    Scripted players play along only where the level is another one.
    """
    found, scripted = [config], make_world(config.env).players
    for name in split_variations(config.evaluate.variations):
        varied = config.copy_and_resolve_references()
        varied.evaluate.protocol = name
        if not is_for_scripted(parse_variation(name)):
            others = [other for other in config.evaluate.beside.split(",") if other not in scripted]
            varied.evaluate.beside = ",".join(others)
        found.append(varied)
    return found
