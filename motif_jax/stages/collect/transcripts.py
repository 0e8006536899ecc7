"""Collects transcripts of games instead of pairs of moments.

Games that are played by writing are recorded as conversations. This process plays them, about ten thousand games of
Wordle per second. Of games with prompts (BabyAI-Text), each moment is recorded: its prompt, and the name of the action
that a scripted player or a trained policy took. These are demonstrations for train_language. A store of transcripts is
written in one step at the end, so a killed run starts again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.actors.capacity import check_capacity
from motif_jax.actors.players import parse_scripted
from motif_jax.actors.pool import ActorPool
from motif_jax.actors.recorded import play_branches, play_episodes
from motif_jax.console import clean, print_line
from motif_jax.envs.own_code import reported
from motif_jax.envs.seeding import SeedStream
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import TEXT, World, to_text
from motif_jax.envs.worlds import essential, make_world
from motif_jax.files import write_config
from motif_jax.networks.kinds import PROMPT
from motif_jax.policies.choice import parse_mixture
from motif_jax.preferences import pairs
from motif_jax.stages.collect.episodes import play_in_order
from motif_jax.stages.collect.page import report_transcripts
from motif_jax.structs import Episode, UserError
from motif_jax.system.metrics import Progress
from motif_jax.transcripts.moments import MOMENTS, are_moments, game_returns, moment, vocabulary
from motif_jax.transcripts.store import RECORD, Transcripts, TranscriptWriter

if TYPE_CHECKING:
    from motif_jax.policies.mixture import Mixture

FLAG = "--config.collect.transcripts"
WORLD_FLAG = "--config.env.world, .options"
FOLDER = "transcripts"
CHECKPOINTS = "checkpoints"  # in a record: the policies that played; a new run may find later ones
SHOW_EVERY = 1000  # episodes between two lines of progress


def is_complete(workdir: Path) -> bool:
    """Whether the transcripts and their config are written."""
    return all((workdir / FOLDER / name).is_file() for name in (RECORD, "config.json"))


def check(config: ConfigDict, world: World) -> None:
    """Raises UserError for values that cannot work."""
    section, written = config.collect, isinstance(world, TextWorld)
    prompt = world.specs.get(PROMPT)
    if not written and not (world.action_names and prompt and prompt.kind == TEXT):
        raise UserError(
            f"transcripts need games that are played by writing or that have prompts, unlike those of {world.name!r} "
            f"({FLAG})"
        )
    if section.branch_player and not written:
        raise UserError(
            f"only games that are played by writing can branch, and those of {world.name!r} are not "
            f"(--config.collect.branch_player, {FLAG})"
        )
    if section.policies and written:
        raise UserError(
            "games that are played by writing are recorded with scripted players, not with policies "
            f"(--config.collect.policies, {FLAG})"
        )
    if section.policies:
        parse_mixture(section.policies, "--config.collect.policies")
    else:
        parse_scripted(section.collector, world)
    if section.branch_player:
        parse_scripted(section.branch_player, world)
    if not written:
        check_capacity(section.num_workers, section.games_per_worker)


def collect(config: ConfigDict, workdir: Path) -> None:
    """Plays the games and writes `workdir/transcripts`."""
    section, path = config.collect, workdir / FOLDER
    world = make_world(config.env)
    provenance = provenance_of(config, world)
    if path.exists():
        found = Transcripts(path, "--workdir")
        if {**found.record["provenance"], CHECKPOINTS: []} != provenance | {CHECKPOINTS: []}:
            raise UserError(f"{str(path)!r} has other transcripts: move them away, or choose another --workdir")
        report_transcripts(workdir)
        write_config(path, config)  # an earlier run was killed before it wrote this
        return
    writer, start = TranscriptWriter(), time.monotonic()
    played: Iterable[Episode]
    numbers = range(section.transcripts)
    if section.branch_player:  # each episode is followed by its branches
        assert isinstance(world, TextWorld)
        played = play_branches(
            world, section.collector, section.branch_player, numbers, per_moment=section.branches, seed=config.seed
        )
    elif isinstance(world, TextWorld):
        played = play_episodes(world, section.collector, numbers, seed=config.seed)
    else:
        mixture = None
        if section.policies:  # only then is JAX loaded
            from motif_jax.policies.mixture import Mixture

            mixture = Mixture(config, path.with_name(f"{FOLDER}.partial"))
            provenance[CHECKPOINTS] = mixture.facts()
        played = play_moments(config, world, mixture)
    progress = Progress("collect", section.transcripts, "games", 0)
    games = 0
    with reported(config.env):
        for episode in played:
            try:
                writer.add(episode)
            except ValueError as error:
                number = int(episode.info["episode"])
                raise UserError(f"game {number:,} cannot be recorded: {error} ({WORLD_FLAG})") from error
            counted = not episode.info.get("branch", 0) and not episode.info.get("step", 0)
            games += counted
            if counted and games % SHOW_EVERY == 0:
                progress.update(games)
    progress.close()
    found = writer.write(path, provenance, FLAG)
    report_transcripts(workdir)
    write_config(path, config)
    print_line(f"collect: {describe(found)}; {time.monotonic() - start:,.0f} s")


def play_moments(config: ConfigDict, world: World, mixture: Mixture | None) -> Iterator[Episode]:
    """Yields the world's words, then each moment of the games as an episode.

    An action's reward is the game's reward-to-go, so that the best episodes are moments of the best games. `info` has
    the game's number, as `episode`, and the `step`; both are -1 for words. If `mixture` is None, the `collector` plays.
    """
    section = config.collect
    yield from vocabulary(getattr(world, "words", ()), episode=-1, step=-1)
    with ActorPool(
        config.env.to_dict(),
        tuple(dict.fromkeys((PROMPT, *(mixture.reads if mixture else ())))),
        num_workers=section.num_workers,
        games_per_worker=section.games_per_worker,
        rollout_length=section.rollout_length,
        player="" if mixture else section.collector,
        groups=mixture.groups if mixture else 1,
        seed=config.seed,
        stream=SeedStream.COLLECT,
        hang_timeout_s=section.hang_timeout_s,
    ) as pool:
        games = 0
        for ready in play_in_order(pool, mixture, {name: name for name in (PROMPT, "action", "reward")}, 0):
            for game in ready:
                if not isinstance(game, pairs.FinishedEpisode):
                    continue  # given up after several crashes
                worth = np.cumsum(game.steps["reward"][::-1])[::-1].tolist()
                for step, (prompt, action) in enumerate(zip(game.steps[PROMPT], game.steps["action"], strict=True)):
                    name = world.action_names[action]
                    yield moment(to_text(prompt), name, worth[step], episode=game.info.episode, step=step)
                games += 1
                if games == section.transcripts:
                    return


def provenance_of(config: ConfigDict, world: World) -> dict[str, Any]:
    """The values that decide the transcripts."""
    section = config.collect
    player = {"policies": section.policies} if section.policies else {"collector": section.collector}
    found = player | {"games": section.transcripts, "seed": config.seed}
    if section.branch_player:
        found |= {"branch_player": section.branch_player, "branches": section.branches}
    if not isinstance(world, TextWorld):
        found[MOMENTS] = True
    return found | {"env": essential(config.env.to_dict())}


def describe(transcripts: Transcripts) -> str:
    """A line about transcripts: their number and their mean return."""
    returns, made = game_returns(transcripts), transcripts.record["provenance"]
    kind = f"{len(returns):,} transcripts"
    if are_moments(transcripts):
        kind = f"{transcripts.record['actions']:,} moments from {len(returns):,} games"
    error = returns.std() / np.sqrt(len(returns))
    by = clean(str(made.get("collector") or made.get("policies", "")))
    return (
        f"{kind} of {by} with {transcripts.num_texts:,} different texts, mean return {returns.mean():.2f} ± {error:.2f}"
    )
