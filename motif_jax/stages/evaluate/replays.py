"""Replays of evaluated episodes: chooses those to keep, and writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.console import print_line
from motif_jax.envs.worlds import essential
from motif_jax.episodes.playback import Track, make_replay, replay_of
from motif_jax.replays.replay import LONGEST, load_replay, save_replay
from motif_jax.rewards.choice import ONLINE, shown_program
from motif_jax.stages.evaluate.contenders import EvaluateConfig
from motif_jax.structs import UserError

FLAG = "--config.evaluate.replays"
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


def choose(config: EvaluateConfig, rows: Mapping[int, Row]) -> dict[str, int]:
    """The episodes whose replays are kept, by word or number."""
    chosen: dict[str, int] = {}
    for word in filter(None, config.evaluate.replays.split(",")):
        if word in WORDS and rows:
            chosen[word] = max(sorted(rows), key=lambda number: WORDS[word](rows[number]))
        elif word.isdecimal() and int(word) in rows:  # an episode may have been given up
            chosen[word] = int(word)
    return chosen


def own_files(folder: Path) -> list[Path]:
    """The replays in a player's directory."""
    return [*(folder / "replays").glob("episode-*.npz")]


def keep_recorded(
    config: EvaluateConfig,
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
        save_replay(file_of(folder, number), replay_of(config.env, rows[number], track, facts, frames))


def remove_others(config: EvaluateConfig, folder: Path, rows: Mapping[int, Row]) -> None:
    """Removes replays that are not chosen among these rows, which must be on disk first, in case the run is killed."""
    keep = {file_of(folder, episode) for episode in choose(config, rows).values()}
    for file in own_files(folder):
        if file not in keep:
            file.unlink()


def recorded_replays(config: EvaluateConfig, folder: Path, rows: Mapping[int, Row]) -> dict[str, int]:
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
    config: EvaluateConfig, folder: Path, rows: Mapping[int, Row], tracks: Mapping[int, Track], about: Row
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


def record(config: EvaluateConfig, file: Path, row: Row, track: Track, about: Row, words: list[str]) -> bool:
    """Plays an episode again and writes its replay; returns False, without writing, if it was not the same again."""
    replay = make_replay(config.env, config.seed, row, track, facts_of(config, about, words))
    if replay is not None:
        save_replay(file, replay)
    return replay is not None


def facts_of(config: EvaluateConfig, about: Row, words: list[str]) -> dict[str, Any]:
    """The facts in a replay about its player, and the words that it was chosen for."""
    facts = {"player": about["name"], "chosen": words}
    facts |= {name: about[name] for name in ("parameters", "reward", "goal", "threshold", "count_exponent")}
    facts |= {"options": about["options"]} if about.get("options") else {}
    program = "" if about["reward"] else shown_program(about.get("sources", {}))
    facts |= {"program": program} if program else {}
    return facts | {"games": games_of(config)}


def games_of(config: EvaluateConfig) -> dict[str, Any]:
    """The settings that decide which games are played: `config.env` and the seed."""
    return essential(config.env) | {"seed": config.seed}
