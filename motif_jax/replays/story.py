"""Sums, top messages and texts of an episode for the viewer, computed once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.captions import decode
from motif_jax.replays.replay import Replay, TopMessage, top_messages
from motif_jax.screens import REVERSED, SHOWN, printable

END_WORDS = {
    "death": "died", "ended": "ended", "aborted": "stopped by the time limit", "task_successful": "reached the goal",
}  # fmt: skip
BARS = "▁▂▃▄▅▆▇█"
LEAST = 0.01  # rewards below this share of the episode's largest are not highlighted
PENALTY = 0.1  # the game's rewards below this are not highlighted: penalties for steps without game time
TOP = 100  # messages in the list
BLOCK = 1000  # frames processed together, to save memory
LEAST_ROWS = 8  # so that the list of messages fits
COMMON = ("episode", "steps", "episode_return", "end_status", "success", "intrinsic_return")  # every world's figures


class Story(NamedTuple):
    """An episode and its sums; frame t + 1 follows action t."""

    replay: Replay
    earned: np.ndarray  # sum of the game's reward so far. [T + 1] float64
    gained: np.ndarray  # sum of the learnt reward so far. [T + 1] float64
    learnt: bool  # whether the episode has a learnt reward
    rewards: np.ndarray  # for the bars: learnt, or else the game's; small ones are 0. [T + 1] float64
    rewarded: np.ndarray  # frames where `rewards` is not 0. int64
    top: list[TopMessage]
    rows: int  # rows of the screen that the game uses in the episode
    pictured: bool = False  # whether films show the game's pictures in these rows


def describe(replay: Replay) -> Story:
    """Computes the story of a replay."""
    intrinsic = np.concatenate([[0.0], np.nan_to_num(replay.intrinsic.astype(np.float64))])
    extrinsic = np.concatenate([[0.0], np.nan_to_num(replay.reward.astype(np.float64))])
    earned, gained = np.cumsum(extrinsic), np.cumsum(intrinsic)
    learnt = bool(np.isfinite(replay.intrinsic).any())
    rewards = intrinsic if learnt else extrinsic
    rewards[np.abs(rewards) < max(LEAST * np.abs(rewards).max(), 0.0 if learnt else PENALTY)] = 0
    top = top_messages(replay, TOP)
    return Story(replay, earned, gained, learnt, rewards, np.flatnonzero(rewards), top, _used_rows(replay))


def _used_rows(replay: Replay) -> int:
    used = LEAST_ROWS
    for start in range(0, len(replay.chars), BLOCK):
        chars, colors = replay.chars[start : start + BLOCK], replay.colors[start : start + BLOCK]
        seen = (SHOWN[chars] != ord(" ")) | (colors >= REVERSED)
        used = max(int(np.flatnonzero(seen.any((0, 2))).max(initial=0)) + 1, used)
    return used


def ending(metadata: Mapping[str, Any]) -> str:
    """Returns the end of the episode in a few words."""
    return str(metadata["cause"] or END_WORDS.get(metadata["end"], metadata["end"] or "not over"))


def chosen(metadata: Mapping[str, Any]) -> str:
    """Returns the recorded reasons for choosing this episode, or ""."""
    return ", ".join(map(str, metadata["chosen"]))


def rewarded_by(metadata: Mapping[str, Any]) -> str:
    """Returns the reward that is shown beside the game's: "learnt", or "program" (docs/code-rewards.md)."""
    return "program" if metadata.get("program") else "learnt"


def action_name(replay: Replay, step: int) -> str:
    """Returns the action at this step and the option that chose it; "" before the first and after the last step."""
    if not 0 <= step < replay.steps:
        return ""
    name = name_of(int(replay.action[step]), replay.metadata["action_names"], "action")
    return name if replay.charge is None else f"{name} ({option_name(replay, step)})"


def name_of(number: int, names: Sequence[Any], kind: str) -> str:
    """Returns the name with this number; "action 7" or "option 7" if there is none."""
    return str(names[number]) if 0 <= number < len(names) else f"{kind} {number}"


def option_name(replay: Replay, step: int) -> str:
    """The name of the option that chose the action at this step, of a replay that has them."""
    assert replay.charge is not None
    return name_of(int(replay.charge[step]), option_names(replay), "option")


def option_names(replay: Replay) -> list[str]:
    """Returns the names of the options of the player's policy."""
    names = replay.metadata.get("options")
    return list(map(str, names)) if isinstance(names, list) else []


def message_text(replay: Replay, frame: int) -> str:
    """The game's message in this frame."""
    return decode(replay.message[frame]).strip()


def number(value: float) -> str:
    """Formats a reward or a sum of rewards; "-" if it is not finite."""
    if not np.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    places = 0 if abs(value) >= 10_000 else 2 if abs(value) >= 0.1 else 3
    return f"{value:+,.{places}f}"


def bars(rewards: np.ndarray, width: int) -> list[tuple[str, float]]:
    """The whole episode in `width` parts: the bar and the value of the reward with the largest magnitude in each.

    Bars grow with the square root of the reward, because the first times of a message have much higher rewards than
    later ones.
    """
    edges = np.linspace(0, len(rewards), width + 1).astype(int)
    parts = [rewards[start : max(end, start + 1)] for start, end in itertools.pairwise(edges)]
    most = [max(part, key=abs, default=0.0) for part in parts]
    scale = float(np.abs(rewards).max(initial=0.0)) or 1.0
    levels = [int(np.ceil((abs(value) / scale) ** 0.5 * len(BARS))) for value in map(float, most)]
    return [(BARS[max(level - 1, 0)], float(value)) for level, value in zip(levels, most, strict=True)]


def bar_of(story: Story, frame: int, width: int) -> int:
    """The index of this frame's part among `width` parts."""
    frames = len(story.rewards)
    return int(np.searchsorted(np.linspace(0, frames, width + 1).astype(int), frame, side="right")) - 1


def summary(story: Story, messages: int) -> str:
    """Summarises the episode in a few lines of text and its most frequent `messages` messages."""
    replay = story.replay
    lines = [f"{replay.title}: {ending(replay.metadata)} after {replay.steps:,} steps"]
    parts = [f"return of the game {number(story.earned[-1])}"]
    parts += [f"{rewarded_by(replay.metadata)} {number(story.gained[-1])}"] * story.learnt
    parts += [
        f"{name.replace('_', ' ')} {value:,}"
        for name, value in replay.metadata["figures"].items()
        if name not in COMMON and type(value) in (int, float)
    ]
    lines.append(", ".join(parts))
    if story.top and messages:
        lines += ["", f"{'times':>7}  {'reward':>7}  message"]
        lines += [f"{top.times:7,}  {number(top.z):>7}  {top.text.strip() or '(none)'}" for top in story.top[:messages]]
    return "\n".join(map(printable, lines))  # without control characters, which could move the cursor
