"""Reads and writes transcripts in the formats of TRL's trainers, one JSON object per line.

    messages     {"messages": [{"role": ..., "content": ...}, ...], "rewards": [...], "done": ...}
    turns        {"prompt": [...], "completion": [{"role": "assistant", ...}]}     one line per turn of the agent
    preferences  {"prompt": [...], "chosen": [...], "rejected": [...]}

The agent is the assistant. Where the world says nothing before a text of the agent, the user's message is empty, as TRL
refuses empty prompts, and chat templates refuse two messages of the assistant in a row; such messages are not read. A
prompt, and the texts after it, may be strings as well.

Columns that TRL's trainers ignore: `rewards`, a number for each turn of the agent, or `reward`, for the last one;
`done`, whether the episode ended by itself (by default it did). A completion with the label true has the reward 1, with
false -1; so have the last turns of the chosen and the rejected text of a preference.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from motif_jax.config.table import shown
from motif_jax.files import write_whole
from motif_jax.structs import Episode, Turn, UserError
from motif_jax.transcripts.imports import MOST_TURNS, check_number, read_lines
from motif_jax.transcripts.store import Transcripts

FORMATS = ("messages", "turns", "preferences")
AGENT, WORLD = "assistant", "user"  # roles
ROLES = ("system", "developer", "tool", AGENT, WORLD)
Message = dict[str, str]


def read_trl(file: Path) -> Iterator[Episode]:
    """Yields the episodes of a file in any of the formats; a preference has two."""
    for episodes in read_lines(file, _episodes):
        yield from episodes


def _episodes(row: Any) -> tuple[Episode, ...]:
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")
    if "messages" in row:
        return (_episode(_messages(row["messages"], WORLD), row),)
    prompt = _messages(row["prompt"], WORLD) if "prompt" in row else []
    if "completion" in row:
        return (_episode([*prompt, *_completion(row["completion"])], row),)
    if "chosen" in row and "rejected" in row:
        pair = (("chosen", 1.0), ("rejected", -1.0))
        return tuple(_episode([*prompt, *_completion(row[name])], {"reward": reward}) for name, reward in pair)
    raise ValueError("it has neither messages, nor a prompt with a completion, nor a chosen and a rejected text")


def _rewards(row: dict[str, Any], count: int) -> list[Any]:
    """The rewards of the agent's turns, unchecked."""
    if row.get("rewards") is not None:
        rewards: list[Any] = row["rewards"]
        return rewards
    last = row.get("reward")
    if last is None and "label" in row:
        if not isinstance(row["label"], bool):
            raise ValueError(f"its label is {shown(row['label'])}, neither true nor false")
        last = 1.0 if row["label"] else -1.0
    return [0.0] * (count - 1) + [0.0 if last is None else last]


def _completion(value: Any) -> list[Message]:
    messages = _messages(value, AGENT)
    if not any(message["role"] == AGENT for message in messages):
        raise ValueError("the assistant says nothing in a completion")
    return messages


def _messages(value: Any, role: str) -> list[Message]:
    """The messages of a list, or of a text that `role` says."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, list) or len(value) > MOST_TURNS:
        raise ValueError(f"{shown(value)} is neither a text nor a list of at most {MOST_TURNS:,} messages")
    for message in value:
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise ValueError(f"the role of a message must be one of {', '.join(ROLES)}: {shown(message)}")
        if not isinstance(message.get("content"), str):
            raise ValueError(f"the content of a message is {shown(message.get('content'))}, instead of a text")
    return value


def _episode(messages: Sequence[Message], row: dict[str, Any]) -> Episode:
    """The episode of a conversation; `row` may have the columns that TRL ignores."""
    messages = [message for message in messages if message["content"] or message["role"] == AGENT]
    count = sum(message["role"] == AGENT for message in messages)
    if not count:
        raise ValueError("the assistant says nothing")
    rewards, done = _rewards(row, count), row.get("done", True)
    if not isinstance(done, bool):
        raise ValueError(f"done is {shown(done)}, neither true nor false")
    if not isinstance(rewards, list) or len(rewards) != count:
        raise ValueError(f"its rewards are {shown(rewards)}, for {count:,} turns of the assistant")
    for reward in rewards:
        check_number(reward, "a reward")
    left = iter(rewards)
    turns = (Turn(message["content"], float(next(left)) if message["role"] == AGENT else None) for message in messages)
    return Episode(tuple(turns), terminal=done)


def write_trl(transcripts: Transcripts, file: Path, form: str, most_mib: int) -> int:
    """Writes transcripts in one of FORMATS, and returns the number of lines.

    `most_mib`: of an episode in the format `turns`.
    """
    turns = functools.partial(_written_turns, most_mib=most_mib)
    writers: dict[str, Callable[[Transcripts], Iterator[dict[str, Any]]]] = {
        "messages": _written_messages, "turns": turns, "preferences": _written_preferences,
    }  # fmt: skip
    count = 0

    def write(opened: Any) -> None:
        nonlocal count
        for row in writers[form](transcripts):
            opened.write((json.dumps(row) + "\n").encode())
            count += 1
        if not count:
            raise UserError(
                "no two episodes begin alike and have different returns, so there are no preferences to write "
                "(--config.export.transcripts)"
                if form == "preferences"
                else "the agent says nothing in these transcripts (--config.export.transcripts)"
            )

    write_whole(file, write)
    return count


def _written_messages(transcripts: Transcripts) -> Iterator[dict[str, Any]]:
    for episode in _all(transcripts):
        if rewards := [turn.reward for turn in episode.turns if turn.is_action]:
            yield {"messages": _conversation(episode.turns), "rewards": rewards, "done": episode.terminal}


def _written_turns(transcripts: Transcripts, most_mib: int) -> Iterator[dict[str, Any]]:
    """A line per turn of the agent; it repeats the conversation, so an episode's lines grow with its length squared."""
    for number, episode in enumerate(_all(transcripts)):
        messages, rewards = _conversation(episode.turns), [turn.reward for turn in episode.turns if turn.is_action]
        ends = [end for end, message in enumerate(messages, 1) if message["role"] == AGENT]
        sizes = [*itertools.accumulate(len(json.dumps(message)) for message in messages)]
        if (mib := sum(sizes[end - 1] for end in ends) // 2**20) > most_mib:
            raise UserError(
                f"episode {number:,} has {len(ends):,} turns of the agent, whose lines would have {mib:,} MiB, and at "
                f"most {most_mib:,} are allowed (--config.export.turns_mib, or --config.export.transcripts=messages)"
            )
        for end, reward in zip(ends, rewards, strict=True):
            *prompt, completion = messages[:end]
            done = episode.terminal and end == ends[-1]
            yield {"prompt": prompt, "completion": [completion], "reward": reward, "done": done}


def _written_preferences(transcripts: Transcripts) -> Iterator[dict[str, Any]]:
    """Pairs of episodes that begin alike, best with worst; the agent's first different turns are compared."""
    returns = transcripts.returns()
    groups: dict[tuple[str, ...], list[int]] = {}  # episodes by the texts before the agent's first turn
    for index, episode in enumerate(_all(transcripts)):
        before = itertools.takewhile(lambda turn: not turn.is_action, episode.turns)
        groups.setdefault(tuple(turn.text for turn in before), []).append(index)
    for group in groups.values():
        group.sort(key=lambda index: returns[index])
        for worse, better in zip(group[: len(group) // 2], reversed(group), strict=False):
            if returns[worse] < returns[better]:
                yield from _preference(transcripts.episode(better).turns, transcripts.episode(worse).turns)


def _preference(better: Sequence[Turn], worse: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    """The first turns that differ, if they are the agent's."""
    for number, (good, bad) in enumerate(zip(better, worse, strict=False)):
        if (good.text, good.is_action) != (bad.text, bad.is_action):
            if good.is_action and bad.is_action:
                *prompt, chosen = _conversation(better[: number + 1])
                yield {"prompt": prompt, "chosen": [chosen], "rejected": [{"role": AGENT, "content": bad.text}]}
            return


def _all(transcripts: Transcripts) -> Iterator[Episode]:
    return (transcripts.episode(index) for index in range(len(transcripts)))


def _conversation(turns: Sequence[Turn]) -> list[Message]:
    """Messages in which the assistant only speaks after the user."""
    messages: list[Message] = []
    for turn in turns:
        if turn.is_action and (not messages or messages[-1]["role"] == AGENT):
            messages.append({"role": WORLD, "content": ""})
        messages.append({"role": AGENT if turn.is_action else WORLD, "content": turn.text})
    return messages
