"""Reads and writes transcripts in the formats of TRL's trainers, one JSON object per line.

    messages     {"messages": [{"role": ..., "content": ...}, ...], "rewards": [...]}
    turns        {"prompt": [...], "completion": [{"role": "assistant", ...}]}     one line per turn of the agent
    preferences  {"prompt": [...], "chosen": [...], "rejected": [...]}

The agent is the assistant. A prompt, and the texts after it, may be strings as well. A line of `messages` may have the
agent's rewards, a list with one number for each of its turns, or `reward`, a number for the last one; TRL's trainers
ignore other columns. Of two texts of a preference, the last turn of the chosen one has the reward 1 and that of the
rejected one -1.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from motif_jax.config.table import shown
from motif_jax.structs import Episode, Turn
from motif_jax.system.files import write_whole
from motif_jax.transcripts.imports import FLAG, MOST_TURNS, check_number, checked_text, read_lines
from motif_jax.transcripts.store import Transcripts

FORMATS = ("messages", "turns", "preferences")
AGENT, WORLD = "assistant", "user"  # roles
ROLES = ("system", "developer", "tool", AGENT, WORLD)
Message = dict[str, str]


def read_trl(file: Path, flag: str = FLAG) -> Iterator[Episode]:
    """Yields the episodes of a file in any of the formats; a preference has two."""
    for episodes in read_lines(file, _episodes, flag):
        yield from episodes


def _episodes(row: Any) -> tuple[Episode, ...]:
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")
    if "messages" in row:
        return (_episode(_messages(row["messages"], WORLD), _rewards(row)),)
    prompt = _messages(row["prompt"], WORLD) if "prompt" in row else []
    if "completion" in row:
        return (_episode([*prompt, *_messages(row["completion"], AGENT)], _rewards(row)),)
    if "chosen" in row and "rejected" in row:
        pair = (("chosen", 1.0), ("rejected", -1.0))
        return tuple(_episode([*prompt, *_messages(row[name], AGENT)], {"reward": reward}) for name, reward in pair)
    raise ValueError("it has neither messages, nor a prompt with a completion, nor a chosen and a rejected text")


def _rewards(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("reward", "rewards") if row.get(name) is not None}


def _messages(value: Any, role: str) -> list[Message]:
    """The messages of a list, or of a text that `role` says."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, list) or len(value) > MOST_TURNS:
        raise ValueError(f"{shown(value)} is neither a text nor a list of at most {MOST_TURNS:,} messages")
    for message in value:
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise ValueError(f"a message is {shown(message)}, without a role of {', '.join(ROLES)}")
        if not isinstance(message.get("content"), str):
            raise ValueError(f"the content of a message is {shown(message.get('content'))}, which is no text")
    return value


def _episode(messages: Sequence[Message], given: dict[str, Any]) -> Episode:
    """The episode of a conversation; `given` has the `rewards` of all turns of the agent, the last one's, or none."""
    count = sum(message["role"] == AGENT for message in messages)
    if not count:
        raise ValueError("the assistant says nothing")
    rewards = given.get("rewards", [0.0] * (count - 1) + [given.get("reward", 0.0)])
    if not isinstance(rewards, list) or len(rewards) != count:
        raise ValueError(f"its rewards are {shown(rewards)}, for {count:,} turns of the assistant")
    for reward in rewards:
        check_number(reward, "a reward")
    left = iter(rewards)
    turns = (
        Turn(checked_text(message["content"]), float(next(left)) if message["role"] == AGENT else None)
        for message in messages
    )
    return Episode(tuple(turns), terminal=True)


def write_trl(transcripts: Transcripts, file: Path, form: str) -> int:
    """Writes transcripts in one of FORMATS, and returns the number of lines."""
    rows = {"messages": _written_messages, "turns": _written_turns, "preferences": _written_preferences}[form]
    count = 0

    def write(opened: Any) -> None:
        nonlocal count
        for row in rows(transcripts):
            opened.write((json.dumps(row) + "\n").encode())
            count += 1

    write_whole(file, write)
    return count


def _written_messages(transcripts: Transcripts) -> Iterator[dict[str, Any]]:
    for episode in _all(transcripts):
        rewards = [turn.reward for turn in episode.turns if turn.is_action]
        yield {"messages": [_message(turn) for turn in episode.turns], "rewards": rewards}


def _written_turns(transcripts: Transcripts) -> Iterator[dict[str, Any]]:
    for episode in _all(transcripts):
        messages = [_message(turn) for turn in episode.turns]
        for place, turn in enumerate(episode.turns):
            if turn.is_action:
                yield {"prompt": messages[:place], "completion": messages[place : place + 1], "reward": turn.reward}


def _written_preferences(transcripts: Transcripts) -> Iterator[dict[str, Any]]:
    """Pairs of episodes that begin alike, best with worst; the agent's first different turns are compared."""
    returns = transcripts.returns()
    texts, starts, actions = transcripts.text, transcripts.starts.tolist(), transcripts.is_action

    def beginning(index: int) -> tuple[int, ...]:
        """The texts before the agent's first turn."""
        first, last = starts[index], int(transcripts.ends[index])
        said = itertools.takewhile(lambda turn: not actions[turn], range(first, last))
        return tuple(int(texts[turn]) for turn in said)

    groups: dict[tuple[int, ...], list[int]] = {}
    for index in range(len(transcripts)):
        groups.setdefault(beginning(index), []).append(index)
    for group in groups.values():
        group.sort(key=lambda index: returns[index])
        for worse, better in zip(group[: len(group) // 2], reversed(group), strict=False):
            if returns[worse] < returns[better]:
                yield from _preference(transcripts.episode(better).turns, transcripts.episode(worse).turns)


def _preference(better: Sequence[Turn], worse: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    """The first turns that differ, if they are the agent's."""
    for place, (good, bad) in enumerate(zip(better, worse, strict=False)):
        if (good.text, good.is_action) != (bad.text, bad.is_action):
            if good.is_action and bad.is_action:
                prompt = [_message(turn) for turn in better[:place]]
                yield {"prompt": prompt, "chosen": [_message(good)], "rejected": [_message(bad)]}
            return


def _all(transcripts: Transcripts) -> Iterator[Episode]:
    return (transcripts.episode(index) for index in range(len(transcripts)))


def _message(turn: Turn) -> Message:
    return {"role": AGENT if turn.is_action else WORLD, "content": turn.text}
