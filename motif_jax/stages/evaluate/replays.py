"""Replays of evaluated episodes: chooses those to keep, and finds or makes the replay of a given episode."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.console import print_line
from motif_jax.devices.releases import released_replay
from motif_jax.envs.protocols import by_protocol, env_by_protocol
from motif_jax.envs.worlds import essential, make_world
from motif_jax.episodes.playback import Track, make_replay, read_tracks, replay_of
from motif_jax.episodes.recordings import plays_the_same_twice
from motif_jax.replays.replay import LONGEST, load_replay, save_replay
from motif_jax.rewards.choice import ONLINE, shown_program
from motif_jax.stages.evaluate.summary import EPISODES, SUMMARY, read_json, read_rows
from motif_jax.structs import UserError

FLAG = "--config.evaluate.replays"
OWN = r"episode-\d{5,}\.npz"  # file names of replays
Row = Mapping[str, Any]
Frames = Mapping[str, np.ndarray]  # of a recorded episode: `actors.recorder.Frames.packed`


def learnt_return(row: Row) -> float:
    """The learnt return of an episode, or the return of the online reward; 0 without either."""
    return row["intrinsic_return"] or (row.get("returns") or {}).get(ONLINE, 0.0)


WORDS: dict[str, Callable[[Row], tuple[float, ...]]] = {  # chooses the first episode with the largest value
    "best": lambda row: (row["episode_return"], learnt_return(row)),
    "worst": lambda row: (-row["episode_return"], -learnt_return(row)),
    "liked": lambda row: (learnt_return(row), row["episode_return"]),
    "longest": lambda row: (row["steps"],),
    "toughest": lambda row: (bool(row["success"]), row["steps"]),  # the longest that reached its goal
}


def check_choice(text: str, episodes: int) -> None:
    """Raises UserError unless `text` is a comma-separated list of WORDS and of numbers below `episodes`."""
    for word in filter(None, text.split(",")):
        if word not in WORDS and not (word.isdecimal() and int(word) < episodes):
            raise UserError(
                f"unknown replay {word!r} ({FLAG}): choose from {', '.join(WORDS)}, or numbers of episodes up to "
                f"{episodes - 1}"
            )


def mean_return(workdir: Path, name: str) -> float:
    """The mean return of an evaluated player; minus infinity if it was not evaluated."""
    summary = read_json(workdir / "evaluate" / name / SUMMARY) or {"figures": {}}
    return (summary["figures"].get("return") or {"mean": -math.inf})["mean"]


def choose(config: ConfigDict, rows: Mapping[int, Row]) -> dict[str, int]:
    """The episodes whose replays are kept, by word or number."""
    chosen: dict[str, int] = {}
    for word in filter(None, config.evaluate.replays.split(",")):
        if word in WORDS and rows:
            chosen[word] = max(sorted(rows), key=lambda number: WORDS[word](rows[number]))
        elif word.isdecimal() and int(word) in rows:  # an episode may have been given up
            chosen[word] = int(word)
    return chosen


def own_files(folder: Path) -> list[Path]:
    """The replays in a player's directory that this program wrote."""
    return [file for file in (folder / "replays").glob("*") if re.fullmatch(OWN, file.name)]


def keep_recorded(
    config: ConfigDict,
    folder: Path,
    chosen: dict[str, int],
    rows: Mapping[int, Row],
    track: Track,
    about: Row,
    number: int,
    frames: Frames,
) -> None:
    """Writes the replay of a recorded episode if it is one of those to keep so far; updates `chosen`."""
    chosen |= choose(config, {episode: rows[episode] for episode in (*chosen.values(), number)})
    if number in chosen.values():
        facts = facts_of(config, about, [])
        save_replay(file_of(folder, number), replay_of(config.env.to_dict(), rows[number], track, facts, frames))


def remove_others(config: ConfigDict, folder: Path, rows: Mapping[int, Row]) -> None:
    """Removes replays that are not chosen among these rows, which must be on disk first, in case the run is killed."""
    keep = {file_of(folder, episode) for episode in choose(config, rows).values()}
    for file in own_files(folder):
        if file not in keep:
            file.unlink()


def recorded_replays(config: ConfigDict, folder: Path, rows: Mapping[int, Row]) -> dict[str, int]:
    """The episode of each word whose replay `keep_recorded` has written; adds the words to the replays."""
    found: dict[str, int] = {}
    for word, number in choose(config, rows).items():
        file = file_of(folder, number)
        replay = load_replay(file, FLAG) if file.is_file() else None
        if replay is None or replay.about["figures"] != rows[number]:  # of an earlier evaluation
            print_line(f"evaluate: no replay of episode {number}: it was not recorded, or has too many frames")
            continue
        found[word] = number
        words = [*(word for word, episode in found.items() if episode == number)]
        save_replay(file, replay._replace(about=replay.about | {"chosen": words}))
    return found


def keep_replays(
    config: ConfigDict, folder: Path, rows: Mapping[int, Row], tracks: Mapping[int, Track], about: Row
) -> dict[str, int]:
    """Writes the chosen episodes to `folder/replays`, removes all others, and returns the episode of each word."""
    chosen = choose(config, rows)
    for file in own_files(folder):
        file.unlink()
    for number in sorted(set(chosen.values())):
        words = [word for word, episode in chosen.items() if episode == number]
        if rows[number]["steps"] > LONGEST:
            print_line(f"evaluate: no replay of episode {number}, which has more than {LONGEST:,} steps")
            chosen = {word: episode for word, episode in chosen.items() if episode != number}
        elif not record(config, file_of(folder, number), rows[number], tracks[number], about, words):
            print_line(f"evaluate: no replay of episode {number}: it cannot be repeated exactly")
            chosen = {word: episode for word, episode in chosen.items() if episode != number}
    return chosen


def file_of(folder: Path, episode: int) -> Path:
    """The path of the replay of an episode in a player's directory."""
    return folder / "replays" / f"episode-{episode:05}.npz"


def record(config: ConfigDict, file: Path, row: Row, track: Track, about: Row, words: list[str]) -> bool:
    """Plays an episode again and writes its replay; returns False, without writing, if it was not the same again."""
    replay = make_replay(config.env.to_dict(), config.seed, row, track, facts_of(config, about, words))
    if replay is not None:
        save_replay(file, replay)
    return replay is not None


def facts_of(config: ConfigDict, about: Row, words: list[str]) -> dict[str, Any]:
    """The facts in a replay about its player, and the words that it was chosen for."""
    facts = {"player": about["name"], "chosen": words}
    facts |= {name: about[name] for name in ("parameters", "reward", "goal", "threshold", "count_exponent")}
    facts |= {"options": about["options"]} if about.get("options") else {}
    program = "" if about["reward"] else shown_program(about.get("sources", {}))
    facts |= {"program": program} if program else {}
    return facts | {"games": games_of(config)}


def games_of(config: ConfigDict) -> dict[str, Any]:
    """The settings that decide which games are played: `config.env` and the seed."""
    return essential(config.env.to_dict()) | {"seed": config.seed}


def obtain(config: ConfigDict, workdir: Path, policy: str, episode: str, flag: str) -> Path:
    """The path of the replay of an episode: one that was kept or released, else one that is made now.

    Args:
      config: the experiment's config.
      workdir: the experiment's directory.
      policy: a player, as in `config.evaluate.policy`.
      episode: one of WORDS, or a number. Number 0 stands in for a word whose episode is not kept.
      flag: the section of the config that names both, for messages: `--config.visualize`.
    """
    from motif_jax.stages.evaluate.contenders import find_all

    config = by_protocol(config)
    world = make_world(config.env)
    contenders = find_all(config, workdir, policy, world, f"{flag}.policy")
    contender = max(contenders, key=lambda one: mean_return(workdir, one.name))  # the best of several decodings
    folder = workdir / "evaluate" / contender.name
    recorded = read_json(folder / "config.json") or {}
    alike = {**essential(env_by_protocol(recorded)), "seed": recorded.get("seed")} == games_of(config)
    summary = read_json(folder / SUMMARY) if alike else None  # not of other games
    if not episode.isdecimal():
        kept = (summary or {}).get("replays", {})
        if episode in kept:
            return file_of(folder, kept[episode])
        if episode == "best" and (released := released_replay(Path(contender.path))):
            return released
        print_line(
            f"the {episode!r} episode of {contender.name} was not kept ({flag}.episode), so this is episode 0; "
            f"--stage=evaluate keeps {config.evaluate.replays or 'none'!r} ({FLAG})"
        )
        episode = "0"
    number = int(episode)
    if summary and file_of(folder, number).is_file():
        return file_of(folder, number)
    tracks = read_tracks(folder / "tracks.npz") if summary else {}
    own = workdir / "visualize" / contender.name
    if number in tracks:
        row = next(row for row in read_rows(folder / EPISODES, world.figures) if row["episode"] == number)
        about, track = read_json(folder / "player.json") or {}, tracks[number]
    else:
        from motif_jax.stages.evaluate.play import make_playing, play

        playing = make_playing(config, workdir, contender, f"{flag}.policy")
        about = contender.facts() | playing.about
        if file_of(own, number).is_file():
            before = load_replay(file_of(own, number), "--workdir").about
            now = {"games": games_of(config), "parameters": about["parameters"], "reward": about["reward"]}
            if {name: before.get(name) for name in now} == now:
                return file_of(own, number)
        rows: dict[int, dict[str, Any]] = {}
        found: dict[int, Track] = {}
        frames: dict[int, Frames] = {}
        same = plays_the_same_twice(config.env.to_dict(), config.seed, config.evaluate.games_per_worker > 1)
        if play(config, playing, {number}, rows, found, lambda: None, None if same else frames.__setitem__):
            raise UserError(f"episode {number} cannot be played: its game ends its worker ({flag}.episode)")
        row, track = rows[number], found[number]
        if number in frames:
            facts = facts_of(config, about, [])
            save_replay(file_of(own, number), replay_of(config.env.to_dict(), row, track, facts, frames[number]))
            return file_of(own, number)
    if row["steps"] > LONGEST:
        raise UserError(f"episode {number} has {row['steps']:,} steps, more than can be shown ({flag}.episode)")
    if not record(config, file_of(own, number), row, track, about, []):
        raise UserError(f"episode {number} cannot be repeated exactly, so it has no replay ({flag}.episode)")
    return file_of(own, number)
