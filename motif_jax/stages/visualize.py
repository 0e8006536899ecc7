"""Visualize: plays an episode of a policy in the terminal, or exports it as a film.

  --stage=visualize                                              the best evaluated episode
  --stage=visualize --config.visualize.policy=random --config.visualize.episode=17
  --stage=visualize --config.visualize.export=best.FORMAT        a film, in a format that a plugin writes
  --stage=visualize --config.visualize.replay=FILE.npz           a file; no policy is needed

Without a terminal, a summary of the episode is printed in a few lines.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from motif_jax.actors.pool import Pools
from motif_jax.config.table import PATH, Number, Text, value
from motif_jax.console import clean, print_line, print_lines
from motif_jax.devices.releases import released_replay
from motif_jax.envs.worlds import check_world, essential
from motif_jax.episodes.playback import Frames, Track, read_tracks
from motif_jax.files import check_place
from motif_jax.names import FILMS, import_named
from motif_jax.pages.players import EPISODES, SUMMARY, read_players
from motif_jax.policies.choice import parse_one
from motif_jax.replays.replay import Story, describe, load_replay, save_replay, summary
from motif_jax.replays.scene import can_watch, watch
from motif_jax.stages import Stage, evaluate, without_lock
from motif_jax.stages.evaluate import Contender, EpisodeRow, EvaluateConfig, file_of, read_json
from motif_jax.structs import Need, UserError, naming
from motif_jax.system.errors import Limits

BEST = "best"


@dataclass(frozen=True)
class Visualize:
    """Playback of an episode."""

    policy: str = value("", PATH, "WORKDIR[@STEP] of a policy, or random or explorer; empty: of this workdir")
    episode: str = value(
        BEST, Text(longest=9), "an evaluated episode: best, worst, liked, longest, toughest, or a number"
    )
    speed: float = value(10.0, Number(0.002, 1e6), "steps per second")  # films: at most 655 s each
    export: str = value("", PATH, "a film to write, instead of playing in the terminal; its name ends in its format")
    replay: str = value("", PATH, "a replay, one of evaluate/*/replays/*.npz, instead of policy and episode")


@dataclass(frozen=True)
class VisualizeConfig(EvaluateConfig):
    """The values that the stage reads."""

    visualize: Visualize = Visualize()


MESSAGES = 20  # in the summary that is printed
FLAG = "--config.visualize"


class FilmWriter(Protocol):
    """Writes films of one format (names.FILMS)."""

    def check(self) -> None:
        """Raises UserError if it cannot write here, before anything is played."""

    def write(self, path: Path, story: Story, speed: float) -> None:
        """Writes a film at `speed` steps per second."""


def film_writer(export: str) -> FilmWriter:
    """The writer for a file of this name; raises UserError without one."""
    path = Path(export)
    if path.suffix.lower() not in FILMS:
        ends = f"must end in one of {', '.join(FILMS)}" if FILMS else "cannot be written: this program writes no films"
        raise UserError(f"{export!r} {ends}")
    if path.is_dir():
        raise UserError(f"{export!r} is a directory")
    writer: FilmWriter = import_named(FILMS[path.suffix.lower()])()
    return writer


def check(config: VisualizeConfig, workdir: Path) -> list[Need]:
    """Raises UserError for misspelt names; returns the needs of a place for the film, and of the replay or policy."""
    section, needs = config.visualize, list[Need]()
    if section.export:
        with naming(f"{FLAG}.export"):
            film_writer(section.export).check()
        needs.append(Need(lambda: check_place(Path(section.export).parent, f"{FLAG}.export")))
    if section.replay and (section.policy or section.episode != BEST):
        raise UserError(f"a replay is an episode of some policy already: give one ({FLAG}.replay, .policy, .episode)")
    if section.replay:
        return [*needs, Need(lambda: load_replay(Path(section.replay), f"{FLAG}.replay"), Path(section.replay))]
    config.protocol.check(config.env)
    world = check_world(config.by_protocol().env)
    if section.policy not in (*world.players, ""):
        policy, _ = evaluate.split_variant(section.policy)
        parse_one(f".{policy}" if policy.startswith("@") else policy or ".", f"{FLAG}.policy")
    if section.episode not in evaluate.WORDS and not section.episode.isdecimal():
        raise UserError(
            f"unknown episode {section.episode!r} ({FLAG}.episode): choose {', '.join(evaluate.WORDS)} or a number"
        )
    return [*needs, *evaluate.needs_player(config, workdir, section.policy, f"{FLAG}.policy")]


def run(config: VisualizeConfig, workdir: Path) -> None:
    """Shows the episode, or writes it to a file."""
    section = config.visualize
    file, flag = (Path(section.replay), "replay") if section.replay else (obtain(config, workdir), "episode")
    replay = load_replay(file, f"{FLAG}.{flag}")
    if section.export:
        path = Path(section.export)
        with naming(f"{FLAG}.export"):
            film_writer(section.export).write(path, describe(replay), section.speed)
        print_line(f"visualize: {clean(replay.title)}, written to {str(path)!r} ({path.stat().st_size / 1e6:,.1f} MB)")
    elif can_watch():
        print_lines(summary(watch(replay, section.speed), MESSAGES))
    else:
        print_lines(summary(describe(replay), MESSAGES) + "\n")
        ways = [f"{FLAG}.export=episode{suffix}" for suffix in FILMS] or ["a writer of films, which is not installed"]
        print_line(f"Playback needs a terminal; to export it: {' or '.join(ways)}")


def obtain(config: VisualizeConfig, workdir: Path) -> Path:
    """The path of the replay of the episode: one that was kept or released, else one that is made now.

    Episode 0 stands in for a word, such as "best", whose episode was not kept.
    """
    config, episode = config.by_protocol(), config.visualize.episode
    players = evaluate.find_all(config, workdir, config.visualize.policy, f"{FLAG}.policy")
    known = read_players(workdir)
    # The best of several decodings.
    contender = max(players, key=lambda one: known[one.name].mean_return if one.name in known else -math.inf)
    folder = workdir / "evaluate" / contender.name
    evaluated = None
    if recorded := read_json(folder / "config.json"):
        games = essential(config.protocol.games(recorded["env"])) | {"seed": recorded["seed"]}
        evaluated = read_json(folder / SUMMARY) if games == evaluate.games_of(config) else None
    if not episode.isdecimal():
        kept = (evaluated or {}).get("replays", {})
        if episode in kept:
            return file_of(folder, kept[episode])
        if episode == BEST and (released := released_replay(Path(contender.path))):
            return released
        print_line(
            f"the {episode!r} episode of {contender.name} was not kept ({FLAG}.episode), so this is episode 0; "
            f"--stage=evaluate keeps {config.evaluate.replays or 'none'!r} ({evaluate.REPLAYS_FLAG})"
        )
        episode = "0"
    number = int(episode)
    if evaluated and file_of(folder, number).is_file():
        return file_of(folder, number)
    file = file_of(workdir / "visualize" / contender.name, number)
    tracks = read_tracks(folder / "tracks.npz") if evaluated else {}
    with contextlib.closing(evaluate.find_frames(config, folder)) as frames:
        if number in tracks:
            row = next(row for row in evaluate.read_rows(folder / EPISODES) if row["episode"] == number)
            track, player = tracks[number], read_json(folder / "player.json") or {}
        elif played := play_one(config, workdir, contender, number, file, frames):
            row, track, player = played
        else:
            return file
        replay = frames.replay(row, track, evaluate.replay_metadata(config, player, []))
    if isinstance(replay, str):
        raise UserError(f"episode {number} {replay} ({FLAG}.episode)")
    save_replay(file, replay)
    return file


def play_one(
    config: VisualizeConfig, workdir: Path, contender: Contender, number: int, file: Path, frames: Frames
) -> tuple[EpisodeRow, Track, dict[str, Any]] | None:
    """Plays an episode that was not evaluated, and returns its player, too; None if `file` is its replay already."""
    from motif_jax.stages.evaluate.play import make_playing, play

    playing = make_playing(config, workdir, contender, f"{FLAG}.policy", {})
    player = playing.metadata
    if file.is_file():
        before = load_replay(file, "--workdir").metadata
        now = {"games": evaluate.games_of(config), "parameters": player["parameters"], "reward": player["reward"]}
        if {name: before.get(name) for name in now} == now:
            return None
    played = [*play(config, playing, {number}, 0, frames, Pools())]
    if not played:
        raise UserError(f"episode {number} cannot be played: its game ends its worker ({FLAG}.episode)")
    return *played[0], player


STAGE = Stage(
    name="visualize",
    sections=("visualize",),
    config=VisualizeConfig,
    folders=lambda config, workdir: [],
    check=check,
    is_complete=lambda config, workdir: False,  # it shows an episode each time it is asked to
    run=run,
    lock=without_lock,
    limits=Limits("--config.visualize.export", "--config.visualize.episode"),
)
