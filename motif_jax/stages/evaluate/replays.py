"""Replays of evaluated episodes: chooses those to keep, and writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from motif_jax.envs.worlds import essential
from motif_jax.episodes.playback import Track, make_replay
from motif_jax.replays.replay import save_replay
from motif_jax.rewards.registry import ONLINE, program_title, shown_source
from motif_jax.stages.evaluate.contenders import EvaluateConfig
from motif_jax.structs import UserError

FLAG = "--config.evaluate.replays"
Row = Mapping[str, Any]


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


def file_of(folder: Path, episode: int) -> Path:
    """The path of the replay of an episode in a player's directory."""
    return folder / "replays" / f"episode-{episode:05}.npz"


def record(config: EvaluateConfig, file: Path, row: Row, track: Track, player: Row, words: list[str]) -> bool:
    """Plays an episode again and writes its replay; returns False, without writing, if it was not the same again."""
    replay = make_replay(config.env, config.seed, row, track, replay_metadata(config, player, words))
    if replay is not None:
        save_replay(file, replay)
    return replay is not None


def replay_metadata(config: EvaluateConfig, player: Row, words: list[str]) -> dict[str, Any]:
    """The metadata of a replay: its player, its games, and the words that it was chosen for."""
    metadata = {"player": player["name"], "chosen": words}
    metadata |= {name: player[name] for name in ("parameters", "reward", "goal", "threshold", "count_exponent")}
    metadata |= {"options": player["options"]} if player.get("options") else {}
    shown = "" if player["reward"] else shown_source(player.get("sources", {}))
    metadata |= {"program": shown} if program_title(shown) else {}
    late = config.policy.reference_alignment and not program_title(shown)
    metadata |= {"one_step_late": True} if late else {}  # each step is rewarded for the message before its action
    return metadata | {"games": games_of(config)}


def games_of(config: EvaluateConfig) -> dict[str, Any]:
    """The settings that decide which games are played: `config.env` and the seed."""
    return essential(config.env) | {"seed": config.seed}
