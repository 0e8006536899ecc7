"""Visualize: plays an episode of a policy in the terminal, or exports it as a GIF, film or terminal recording.

  --stage=visualize                                              the best evaluated episode
  --stage=visualize --config.visualize.policy=random --config.visualize.episode=17
  --stage=visualize --config.visualize.export=best.gif           also .mp4, and .cast for asciinema
  --stage=visualize --config.visualize.replay=FILE.npz           a file; no policy is needed

Without a terminal, a summary of the episode is printed in a few lines.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motif_jax.config.table import PATH, Number, Tables, Text, section, tables_of, value
from motif_jax.console import clean, print_line, print_lines
from motif_jax.envs.protocols import by_protocol, check_protocol
from motif_jax.envs.worlds import check_world, make_world
from motif_jax.policies.choice import parse_one
from motif_jax.stages import Experiment, Stage, untyped, without_lock
from motif_jax.stages.evaluate import READS as EVALUATION
from motif_jax.stages.evaluate.replays import WORDS, obtain
from motif_jax.structs import UserError
from motif_jax.system.metrics import Progress

if TYPE_CHECKING:
    from motif_jax.replays.story import Story


@dataclass(frozen=True)
class Visualize:
    """Playback of an episode."""

    policy: str = value("", PATH, "WORKDIR[@STEP] of a policy, or random or explorer; empty: of this workdir")
    episode: str = value(
        "best", Text(longest=9), "an evaluated episode: best, worst, liked, longest, toughest, or a number"
    )
    speed: float = value(10.0, Number(0.001, 1e6), "steps per second")
    export: str = value("", PATH, "a .cast, .gif or .mp4 to write, instead of playing it in the terminal")
    replay: str = value("", PATH, "a replay, one of evaluate/*/replays/*.npz, instead of policy and episode")


@dataclass(frozen=True)
class VisualizeConfig(Experiment):
    """What the stage reads; the sections of evaluation stay mappings."""

    env: Mapping[str, Any] = section(EVALUATION["env"])
    policy: Mapping[str, Any] = section(EVALUATION["policy"])
    profile: Mapping[str, Any] = section(EVALUATION["profile"])
    train_values: Mapping[str, Any] = section(EVALUATION["train_values"])
    evaluate: Mapping[str, Any] = section(EVALUATION["evaluate"])
    decoding: Mapping[str, Any] = section(EVALUATION["decoding"])
    visualize: Visualize = Visualize()


READS = tables_of(VisualizeConfig)
TABLES: Tables = {"visualize": READS["visualize"]}
EXPORTS = (".cast", ".gif", ".mp4")
LONGEST_S = 655  # longest duration of one picture of a GIF, in seconds
MESSAGES = 20  # in the summary that is printed
FLAG = "--config.visualize"


def loads_jax(config: VisualizeConfig) -> bool:
    """Whether the stage may have to play an episode with a policy."""
    return not config.visualize.replay and config.visualize.policy not in make_world(config.env).players


def check(config: VisualizeConfig) -> None:
    """Raises UserError for values that cannot work, before anything is played."""
    section = config.visualize
    if section.export:
        _check_export(Path(section.export))
        if section.export.lower().endswith(".gif") and 1 / section.speed > LONGEST_S:
            raise UserError(
                f"a .gif shows a step for {LONGEST_S} seconds at most, but a speed of {section.speed:g} steps per "
                f"second needs more ({FLAG}.speed, .export)"
            )
    if section.replay:
        if section.policy:
            raise UserError(f"name a policy ({FLAG}.policy) or a replay ({FLAG}.replay), not both")
        if not Path(section.replay).is_file():
            raise UserError(f"there is no replay {section.replay!r} ({FLAG}.replay)")
        return
    check_protocol(untyped(config))
    world = check_world(by_protocol(untyped(config)).env)
    if section.policy not in (*world.players, ""):
        parse_one(section.policy, f"{FLAG}.policy")
    if section.episode not in WORDS and not section.episode.isdecimal():
        raise UserError(
            f"unknown episode {section.episode!r} ({FLAG}.episode): choose {', '.join(WORDS)} or a number from 0 on"
        )


def _check_export(path: Path) -> None:
    if path.suffix.lower() not in EXPORTS:
        raise UserError(f"{str(path)!r} must end in one of {', '.join(EXPORTS)} ({FLAG}.export)")
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a directory ({FLAG}.export)")
    home = next(parent for parent in path.absolute().parents if parent.exists())  # missing directories are made later
    if not home.is_dir() or not os.access(home, os.W_OK):
        raise UserError(f"cannot write {str(path)!r}: {str(home)!r} is not a writable directory ({FLAG}.export)")
    if path.suffix.lower() == ".mp4":
        from motif_jax.replays.movie import find_ffmpeg

        find_ffmpeg(f"{FLAG}.export")


def run(config: VisualizeConfig, workdir: Path) -> None:
    """Shows the episode, or writes it to a file."""
    from motif_jax.replays.replay import load_replay
    from motif_jax.replays.story import describe, summary
    from motif_jax.replays.terminal import can_watch, watch

    # ---- which episode
    section = config.visualize
    if section.replay:
        path, flag = Path(section.replay), f"{FLAG}.replay"
    else:
        path, flag = obtain(untyped(config), workdir, section.policy, section.episode, FLAG), f"{FLAG}.episode"
    replay = load_replay(path, flag)

    # ---- show it
    if section.export:
        _export(Path(section.export), describe(replay), section.speed)
    elif can_watch():
        print_lines(summary(watch(replay, section.speed), MESSAGES))
    else:
        print_lines(summary(describe(replay), MESSAGES) + "\n")
        print_line(f"Playback needs a terminal; to export it: {FLAG}.export=episode.gif (or {', '.join(EXPORTS)})")


def _export(path: Path, story: Story, speed: float) -> None:
    from motif_jax.replays.film import count_sheets, write_cast

    bar = Progress(path.name, count_sheets(story, speed), "pictures")
    try:
        if path.suffix.lower() == ".cast":
            write_cast(path, story, speed, bar.update)
        elif path.suffix.lower() == ".gif":
            from motif_jax.replays.pictures import write_gif

            write_gif(path, story, speed, bar.update)
        else:
            from motif_jax.replays.movie import write_mp4

            write_mp4(path, story, speed, bar.update, f"{FLAG}.export")
    finally:
        bar.close()
    print_line(
        f"visualize: {clean(story.replay.title)}, written to {str(path)!r} ({path.stat().st_size / 1e6:,.1f} MB)"
    )


STAGE = Stage(
    config=VisualizeConfig,
    tables=TABLES,
    reads=READS,
    check=check,
    is_complete=lambda config, workdir: False,  # it shows an episode each time it is asked to
    run=run,
    writes="--config.visualize.export",
    memory="--config.visualize.episode",
    lock=without_lock,
    loads_jax=loads_jax,
)
