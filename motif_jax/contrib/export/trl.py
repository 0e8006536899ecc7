"""Writes transcripts in the formats of TRL's trainers, which transcripts/imports.py reads."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from motif_jax.files import write_whole
from motif_jax.structs import Turn, UserError
from motif_jax.transcripts.imports import AGENT, WORLD, Message
from motif_jax.transcripts.store import Transcripts


def write_trl(transcripts: Transcripts, file: Path, form: str, most_mib: int) -> int:
    """Writes transcripts in one of FORMATS, and returns the number of lines.

    `most_mib`: of an episode in the format `turns`.
    """
    count = 0

    def write(opened: Any) -> None:
        nonlocal count
        rows = _preferences(transcripts) if form == "preferences" else _talks(transcripts, form == "turns", most_mib)
        for row in rows:
            opened.write((json.dumps(row) + "\n").encode())
            count += 1
        if not count:
            compared = "no two episodes begin alike and have different returns"
            why = compared if form == "preferences" else "the agent says nothing"
            raise UserError(f"there is nothing to write: {why} (--config.export.transcripts)")

    write_whole(file, write)
    return count


def _talks(transcripts: Transcripts, by_turn: bool, most_mib: int) -> Iterator[dict[str, Any]]:
    """A line per episode; or per turn of the agent, with the conversation so far, so they grow with its square."""
    for number, episode in enumerate(transcripts.episodes()):
        messages, rewards = _conversation(episode.turns), [turn.reward for turn in episode.turns if turn.is_action]
        if not by_turn:
            if rewards:
                yield {"messages": messages, "rewards": rewards, "done": episode.terminal}
            continue
        ends = [end for end, message in enumerate(messages, 1) if message["role"] == AGENT]
        sizes = [*itertools.accumulate(len(json.dumps(message)) for message in messages)]
        if (mib := sum(sizes[end - 1] for end in ends) // 2**20) > most_mib:
            problem = f"the lines of episode {number:,}, with {len(ends):,} turns of the agent, have {mib:,} MiB"
            raise UserError(f"{problem} (--config.export.turns_mib, or --config.export.transcripts=messages)")
        for end, reward in zip(ends, rewards, strict=True):
            *prompt, completion = messages[:end]
            done = episode.terminal and end == ends[-1]
            yield {"prompt": prompt, "completion": [completion], "reward": reward, "done": done}


def _preferences(transcripts: Transcripts) -> Iterator[dict[str, Any]]:
    """Pairs of episodes that begin alike, best with worst: the first different turns are compared, if the agent's."""
    returns = transcripts.returns()
    groups: dict[tuple[str, ...], list[int]] = {}  # episodes by the texts before the agent's first turn
    for index, episode in enumerate(transcripts.episodes()):
        before = itertools.takewhile(lambda turn: not turn.is_action, episode.turns)
        groups.setdefault(tuple(turn.text for turn in before), []).append(index)
    for group in groups.values():
        group.sort(key=lambda index: returns[index])
        for worse, better in zip(group[: len(group) // 2], reversed(group), strict=False):
            if returns[worse] >= returns[better]:
                continue
            turns, others = transcripts.episode(better).turns, transcripts.episode(worse).turns
            for number, (good, bad) in enumerate(zip(turns, others, strict=False), 1):
                if (good.text, good.is_action) != (bad.text, bad.is_action):
                    if good.is_action and bad.is_action:
                        *prompt, chosen = _conversation(turns[:number])
                        rejected = {"role": AGENT, "content": bad.text}
                        yield {"prompt": prompt, "chosen": [chosen], "rejected": [rejected]}
                    break


def _conversation(turns: Sequence[Turn]) -> list[Message]:
    """Messages in which the assistant only speaks after the user."""
    messages: list[Message] = []
    for turn in turns:
        if turn.is_action and (not messages or messages[-1]["role"] == AGENT):
            messages.append({"role": WORLD, "content": ""})
        messages.append({"role": AGENT if turn.is_action else WORLD, "content": turn.text})
    return messages
