"""Evaluate: plays the same games with policies and scripted players, and summarises them.

Episodes 0 to N - 1 of the evaluation games, which are not used in training, are played to their end. Games run side by
side, so some later episodes are begun as well; they are not counted, so short episodes are not favoured. Each player
has a directory, `evaluate/NAME`: a line per episode, a summary of means with 95 % bootstrap intervals, and replays of
some episodes. Episodes of an interrupted or shorter run are kept. The players of `config.evaluate.beside` play the same
games.

The games are the same in each evaluation. A policy that samples acts differently each time; a greedy policy acts the
same except for rounding, which depends on the number of games per call. play.py plays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.actors.capacity import check_capacity
from motif_jax.config.table import (
    MANY_SECONDS,
    PATH,
    PATHS,
    Flag,
    Number,
    Tables,
    Text,
    Whole,
    check_values,
    table_of,
    value,
)
from motif_jax.console import print_line
from motif_jax.envs.protocols import CHANGED, CONTROLS, TASK, by_protocol, check_protocol
from motif_jax.envs.world import World, is_text
from motif_jax.envs.worlds import TABLE as ENV
from motif_jax.envs.worlds import check_world, make_world, title
from motif_jax.episodes.playback import Track, read_tracks, write_tracks
from motif_jax.episodes.recordings import plays_the_same_twice
from motif_jax.offline.recipes import recipe_of
from motif_jax.policies.decoding import TABLE as DECODING
from motif_jax.policies.decoding import check_decoding, decodings_of
from motif_jax.stages import EXPERIMENT, Stage, with_result
from motif_jax.stages.evaluate.contenders import (
    Contender,
    check_policies,
    check_variations,
    find_contenders,
    is_evaluated,
    stamp,
    with_variations,
)
from motif_jax.stages.evaluate.replays import (
    check_choice,
    choose,
    keep_recorded,
    keep_replays,
    recorded_replays,
    remove_others,
)
from motif_jax.stages.evaluate.summary import (
    EPISODES,
    SUMMARY,
    print_controls,
    print_sweep,
    print_table,
    read_json,
    read_rows,
    rules_of,
    summarise_episodes,
)
from motif_jax.stages.train_policy import TABLES as TRAINING
from motif_jax.stages.train_values import READS as VALUES_READ
from motif_jax.stages.train_values import TABLES as VALUES
from motif_jax.stages.train_values import check_texts_fit
from motif_jax.structs import UserError
from motif_jax.system.files import write_config, write_json, write_lines
from motif_jax.system.machine import usable_cores


@dataclass(frozen=True)
class Evaluate:
    """Evaluation of policies and scripted players."""

    policy: str = value(
        "",
        PATH,
        "WORKDIR[@STEP] of a policy, or random or explorer; or a language model: directory, GGUF file, or smollm2; "
        "empty: of this workdir",
    )
    beside: str = value(
        "random", PATHS, "other players of the same games, comma-separated: a scripted one, WORKDIR, @STEP"
    )
    protocol: str = value(
        TASK,
        Text(tuple(CHANGED)),
        "rules of evaluation: task: those of env; challenge: the NetHack Challenge's; or BALROG's",
    )
    variations: str = value(
        "",
        Text(longest=4000),
        "variations of babyai to evaluate as well: rewording=synonyms;level=GoToFrench+actions=french",
    )
    controls: str = value(
        "",
        Text(tuple(CONTROLS)),
        "controls of babyai to evaluate as well, in one table with zero-shot and random play; grounding: does it read "
        "its mission?",
    )
    episodes: int = value(100, Whole(1, 1_000_000), "episodes, played to their end; they are not used in training")
    replays: str = value(
        "best,worst,liked", Text(longest=1000), "episodes to keep: best, worst, liked, longest, toughest, or numbers"
    )
    greedy: bool = value(False, Flag(), "always choose the most probable action; often worse in games of chance")
    num_workers: int = value(usable_cores, Whole(), "worker processes; 0: play in this process, for debugging")
    games_per_worker: int = value(16, Whole(1), "games per worker, played in parallel")
    hang_timeout_s: float = value(
        30.0, Number(0.1, MANY_SECONDS), "heartbeat timeout in seconds: a silent worker is replaced"
    )


TABLES: Tables = {"evaluate": table_of(Evaluate), "decoding": DECODING}


RESULTS = (SUMMARY, EPISODES, "tracks.npz")  # of a player, beside `player.json`
READS: Tables = EXPERIMENT | {"env": ENV} | TRAINING | VALUES | TABLES


def artefacts(workdir: Path) -> list[Path]:
    """The directories of the evaluated players."""
    folders = sorted((workdir / "evaluate").glob("*"))
    return [made for folder in folders for made in with_result(folder, EPISODES, SUMMARY)]


def check(config: ConfigDict) -> None:
    """Raises UserError for values that cannot work."""
    check_values(config, READS)
    section = config.evaluate
    check_protocol(config)
    world = check_world(by_protocol(config).env)
    rules_of(world)
    if is_text(world.action):
        check_writing(config, world)
    check_policies(section, world)
    check_variations(config, world)
    check_choice(section.replays, section.episodes)
    check_capacity(section.num_workers, section.games_per_worker, flag="--config.evaluate")


def check_writing(config: ConfigDict, world: World) -> None:
    """Raises UserError if the values that this experiment learns do not allow the chosen decodings."""
    section, decodings = config.evaluate, decodings_of(config.decoding)
    if section.greedy:
        raise UserError(
            f"in the world {world.name!r} policies write texts: choose --config.decoding.kinds=greedy instead "
            "(--config.evaluate.greedy)"
        )
    if section.policy == "" and "train_values" in config.stages:
        check_decoding(recipe_of(config.train_values.recipe), decodings)
        check_values(config, {name: VALUES_READ[name] for name in ("language", "train_language")})
        check_texts_fit(config)


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Whether every player that the config names has a summary over the wanted number of episodes."""
    for asked in with_variations(config):
        try:
            contenders = find_contenders(asked, workdir)
        except UserError:
            return False  # `run` reports it; an earlier stage may still make the policy
        if not all(is_evaluated(asked, workdir, contender) for contender, _ in contenders):
            return False
    return True


def run(config: ConfigDict, workdir: Path) -> None:
    """Evaluates each player without an up-to-date summary, and prints a table of the results."""
    from motif_jax.stages.evaluate.writers import check_writers

    loaded: dict[Any, Any] = {}  # policies that several decodings share
    played: dict[str, list[str]] = {}  # names of players by the protocol of their games
    for asked in with_variations(config):
        contenders = find_contenders(asked, workdir)
        played[asked.evaluate.protocol] = [contender.name for contender, _ in contenders]
        due = [(one, flag) for one, flag in contenders if not is_evaluated(asked, workdir, one)]
        check_writers(asked, workdir, due, loaded)
        for contender, flag in sorted(due, key=lambda one: not one[0].option):  # a wrong option is refused at once
            evaluate(asked, workdir, contender, flag, loaded)
        if contenders[-1][0].decoding:
            print_sweep(workdir / "evaluate", [contender.name for contender, _ in contenders])
            continue
        if not config.evaluate.controls:
            print_table(workdir / "evaluate", contenders[-1][0].name, make_world(config.env).figures)
    if config.evaluate.controls:
        print_controls(workdir / "evaluate", played, CONTROLS[config.evaluate.controls])


def evaluate(
    config: ConfigDict, workdir: Path, contender: Contender, flag: str, loaded: dict[Any, Any] | None = None
) -> None:
    """Plays the episodes of one player and writes `workdir/evaluate/NAME`.

    `flag` names the player in the config; `loaded` keeps policies that the next contender may share.
    """
    from motif_jax.stages.evaluate.play import make_playing, play

    # ---- the player, and the episodes that were played before
    asked, config = config, by_protocol(config)
    section, world = config.evaluate, make_world(config.env)
    wanted = section.episodes
    folder = workdir / "evaluate" / contender.name
    playing = make_playing(config, workdir, contender, flag, loaded)
    about = contender.facts() | playing.about
    if section.protocol != TASK:
        about["protocol"] = section.protocol
    rows: dict[int, dict[str, Any]] = {}
    tracks: dict[int, Track] = {}
    beyond: dict[int, dict[str, Any]] = {}  # of an evaluation with more episodes; kept, not counted
    player = read_json(folder / "player.json")
    before = player if with_result(folder, EPISODES, SUMMARY) else None
    if before and before["path"] != contender.path:
        raise UserError(
            f"{str(folder)!r} belongs to another policy of this name, {before['path']!r}: move it away, or use another "
            f"--workdir ({flag})"
        )
    if player is None and (there := [name for name in RESULTS if os.path.lexists(folder / name)]):
        raise UserError(f"{str(folder / there[0])!r} was not made by this program: move it away (--workdir)")
    if before == about:
        tracks = read_tracks(folder / "tracks.npz")
        found = read_rows(folder / EPISODES, world.figures)
        known = {row["episode"]: row for row in found if row["episode"] in tracks}
        rows = {number: row for number, row in known.items() if number < wanted}
        beyond = {number: row for number, row in known.items() if number >= wanted}
        if rows:
            print_line(f"evaluate: {len(rows):,} of {wanted:,} episodes of {contender.name} were played before")
    else:
        if before:
            print_line(
                f"evaluate: {contender.name} is played again, because its parameters or its learnt reward have changed"
            )
        for name in RESULTS:
            (folder / name).unlink(missing_ok=True)
        write_json(folder / "player.json", about)
    (folder / SUMMARY).unlink(missing_ok=True)  # it may be of another number of episodes, or of a changed player
    write_config(folder, asked)

    # ---- play
    def keep() -> None:
        if not rows:
            return
        write_tracks(folder / "tracks.npz", tracks)  # first: a line without its steps would be played again
        write_lines(folder / EPISODES, [row for _, row in sorted((rows | beyond).items())])
        if not repeatable:
            remove_others(config, folder, rows)

    recorded = choose(config, rows)

    def keep_frames(number: int, frames: Mapping[str, np.ndarray]) -> None:
        keep_recorded(config, folder, recorded, rows, tracks[number], about, number, frames)

    missing = set(range(wanted)) - set(rows)
    repeatable = plays_the_same_twice(config.env.to_dict(), config.seed, section.games_per_worker > 1)
    if not repeatable:
        print_line("evaluate: this game cannot be repeated exactly: it can only be recorded while it is played")
    start, steps_before = time.monotonic(), sum(row["steps"] for row in rows.values())
    try:
        given_up = play(config, playing, missing, rows, tracks, keep, None if repeatable else keep_frames)
    finally:
        keep()  # also if a signal ends the program
    if rows and not repeatable and all(row["did"] is None for row in rows.values()):
        print_line(
            "evaluate: no episode was recorded, so replays and events are missing: a world's own Vector needs the "
            "method `replace_games` (docs/own-game.md)"
        )
    seconds = time.monotonic() - start
    steps = sum(row["steps"] for row in rows.values()) - steps_before

    # ---- results
    kept = keep_replays(config, folder, rows, tracks, about) if repeatable else recorded_replays(config, folder, rows)
    if playing.writer and playing.decoding and repeatable:
        from motif_jax.stages.evaluate.writers import write_letters

        shown = {number: tracks[number] for number in kept.values()}
        write_letters(config, folder / "letters.json", playing.writer, playing.decoding, shown)
    write_json(folder / SUMMARY, about | {
        "stamp": stamp(config, workdir, contender),
        "episodes": wanted,
        "episodes_given_up": given_up,
        "repeatable": repeatable,
        "task": title(config.env) if section.protocol == TASK else section.protocol,
        "seconds": round(seconds, 1),
        "steps_per_s": round(steps / seconds),
        "chosen": section.replays,
        "replays": kept,
        **summarise_episodes(
            [rows[number] for number in sorted(rows)], config.seed, world.figures, rules_of(world),
            getattr(world, "families", ()), wanted,
        ),
    })  # fmt: skip
    print_line(f"evaluate: {wanted:,} episodes, {steps:,} new steps in {seconds:,.0f} s; {folder}")


STAGE = Stage(
    tables=TABLES,
    reads=READS,
    identity=("", "env"),  # so that compared results are from the same games
    check=check,
    is_complete=is_complete,
    run=run,
    makes=("evaluate",),
    writes="--config.evaluate.replays, .episodes",
    memory="--config.evaluate.num_workers, .games_per_worker",
    artefacts=artefacts,
)
