"""Collects games of a world that is played by writing, as transcripts instead of pairs of moments.

The games are played in this process, some ten thousand of Wordle in a second. A store of transcripts is written whole
or not at all, so a run that was killed begins again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.actors.players import parse_scripted
from motif_jax.actors.recorded import play_branches, play_episodes
from motif_jax.console import clean, print_line
from motif_jax.envs.own_code import reported
from motif_jax.envs.settings import essential, make_world
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import World
from motif_jax.files import write_config
from motif_jax.metrics import Progress
from motif_jax.structs import Episode, UserError
from motif_jax.transcripts.store import RECORD, Transcripts, TranscriptWriter

FLAG = "--config.collect.transcripts"
WORLD_FLAG = "--config.env.world, .options"
FOLDER = "transcripts"
SHOW_EVERY = 1000  # episodes between two lines of progress


def is_complete(workdir: Path) -> bool:
    """Whether the transcripts are written, and the config that made them beside them."""
    return all((workdir / FOLDER / name).is_file() for name in (RECORD, "config.json"))


def check(config: ConfigDict, world: World) -> None:
    """Raises UserError for values that cannot work."""
    section = config.collect
    if not isinstance(world, TextWorld):
        raise UserError(f"transcripts are of worlds that are played by writing, and {world.name!r} is not ({FLAG})")
    if section.policies:
        raise UserError(f"only scripted players are recorded as transcripts (--config.collect.policies, {FLAG})")
    parse_scripted(section.collector, world)
    if section.branch_player:
        parse_scripted(section.branch_player, world)


def collect(config: ConfigDict, workdir: Path) -> None:
    """Plays the games and writes `workdir/transcripts`."""
    section, path = config.collect, workdir / FOLDER
    provenance = provenance_of(config)
    if path.exists():
        found = Transcripts(path, "--workdir")
        if found.record["provenance"] != provenance:
            raise UserError(f"{str(path)!r} has other transcripts: move them away, or choose another --workdir")
        write_config(path, config)  # a run was killed right before that
        return
    writer, start = TranscriptWriter(), time.monotonic()
    progress = Progress("collect", section.transcripts, "games", 0)
    games = 0
    with reported(config.env):
        for episode in play(config):
            try:
                writer.add(episode)
            except ValueError as error:
                number = int(episode.info["episode"])
                raise UserError(f"game {number:,} cannot be recorded: {error} ({WORLD_FLAG})") from error
            games += not episode.info.get("branch", 0)
            if games % SHOW_EVERY == 0:
                progress.update(games)
    progress.close()
    found = writer.write(path, provenance, FLAG)
    write_config(path, config)
    print_line(f"collect: {describe(found)}; {time.monotonic() - start:,.0f} s")


def play(config: ConfigDict) -> Iterable[Episode]:
    """The episodes, one after another; with a `branch_player`, each before its branches."""
    section, world = config.collect, make_world(config.env)
    assert isinstance(world, TextWorld)
    numbers = range(section.transcripts)
    if not section.branch_player:
        return play_episodes(world, section.collector, numbers, seed=config.seed)
    return play_branches(
        world, section.collector, section.branch_player, numbers, per_moment=section.branches, seed=config.seed
    )


def provenance_of(config: ConfigDict) -> dict[str, Any]:
    """What decides the transcripts."""
    section = config.collect
    found = {"collector": section.collector, "games": section.transcripts, "seed": config.seed}
    if section.branch_player:
        found |= {"branch_player": section.branch_player, "branches": section.branches}
    return found | {"env": essential(config.env.to_dict())}


def describe(transcripts: Transcripts) -> str:
    """How many episodes there are, and what they are worth, in a line."""
    returns = transcripts.returns()
    error = returns.std() / np.sqrt(len(returns))
    by = clean(str(transcripts.record["provenance"].get("collector", "")))
    return (
        f"{len(transcripts):,} transcripts of {by} with {transcripts.num_texts:,} different texts, mean return "
        f"{returns.mean():.2f} ± {error:.2f}"
    )
