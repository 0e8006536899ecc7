"""Reads published formats of conversations (docs/transcripts.md) as episodes; writes transcripts in TRL's formats.

Errors name the file and the line. Pickles are never read.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motif_jax.config.table import Number, shown
from motif_jax.structs import Episode, Turn, UserError, legible
from motif_jax.system.foreign import LONGEST_LINE, open_regular, read_bytes
from motif_jax.transcripts.store import Transcripts, TranscriptWriter, check_episode

FLAG = "--config.transcripts.import_from"
LARGEST_JSON = 2**30  # bytes of a file with one JSON value
WRONG = KeyError, TypeError, AttributeError, OverflowError, RecursionError  # of values that have another form
KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}  # of JSON
REVEALED = 0.5  # a dialogue ends when the rank has risen by this share of the possible rise


class TranscriptFormat:
    """A format of conversations: what a name of `transcripts.import_format` stands for (names.py)."""

    prompts = False  # whether episodes are prompts and names of actions, for a policy that plays

    def find(self, names: Sequence[str]) -> list[Path]:
        """The files that `transcripts.import_from` names."""
        return [Path(os.path.expanduser(name)) for name in names]

    def check(self, names: Sequence[str], env: Mapping[str, Any]) -> None:
        """Raises UserError for names, or a section `env`, from which no episodes can be made."""

    def about(self, env: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """What decides the episodes beside the files."""
        return {}

    def episodes(self, files: Sequence[Path], env: Mapping[str, Any], seed: int) -> Iterator[Episode]:
        """All episodes; raises UserError for files of another form."""
        raise NotImplementedError


@dataclass(frozen=True)
class Recorded(TranscriptFormat):
    """Files of conversations, read one after another."""

    read: Callable[[Path], Iterator[Episode]]

    def episodes(self, files: Sequence[Path], env: Mapping[str, Any], seed: int) -> Iterator[Episode]:
        return itertools.chain.from_iterable(map(self.read, files))


def read_lmrl(file: Path) -> Iterator[Episode]:
    """The episodes of an LMRL-Gym file, with one reward per text, or one per text except the first."""
    return read_lines(file, lambda row: (_lmrl_episode(row),))


def read_lines(file: Path, parse: Callable[[Any], tuple[Episode, ...]]) -> Iterator[Episode]:
    """Yields the episodes of each line of JSON; `parse` raises ValueError or one of WRONG if it has none."""
    for where, line in _lines(file):
        if line.strip():
            with legible(f"{where} as an episode", FLAG, *WRONG):
                episodes = parse(json.loads(line))
                for episode in episodes:
                    check_episode(episode)
            yield from episodes


def _lines(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the lines of a file, each after "line N of FILE"."""
    with legible(repr(str(file)), FLAG):
        opened = open_regular(file)  # what reads it is not in this block
    with opened:
        for number, line in enumerate(iter(lambda: opened.readline(LONGEST_LINE), b""), 1):
            where = f"line {number:,} of {str(file)!r}"
            if len(line) >= LONGEST_LINE:
                raise UserError(f"{where} is longer than {LONGEST_LINE:,} bytes ({FLAG})")
            yield where, line


def _field(row: Any, name: str, *kinds: type) -> Any:
    """A value of an object in a file; raises ValueError, in words, if it is missing or of another type than `kinds`."""
    if not isinstance(row, dict):
        raise ValueError(f"{shown(row)} is {_kind(row)}, not an object with {name!r}")
    if name not in row:
        raise ValueError(f"it has no {name!r}")
    if kinds and not isinstance(row[name], kinds):
        wanted = " or ".join(KINDS[kind] for kind in kinds)
        raise ValueError(f"{name!r} is {_kind(row[name])}, not {wanted}: {shown(row[name])}")
    return row[name]


def _kind(value: Any) -> str:
    return KINDS.get(type(value), "a number")


def _lmrl_episode(row: Any) -> Episode:
    sequence, rewards = _field(row, "sequence", list), _field(row, "reward", list)
    if not len(sequence) - 1 <= len(rewards) <= len(sequence):
        raise ValueError(f"it has {len(sequence):,} texts and {len(rewards):,} rewards")
    rewards = [0.0] * (len(sequence) - len(rewards)) + rewards
    if not all(map(Number().allows, rewards)):
        raise ValueError(f"its rewards are {shown(rewards)}, not numbers")
    turns = []
    for turn, reward in zip(sequence, rewards, strict=True):
        if not (isinstance(turn, list) and len(turn) == 2 and turn[1] in (0, 1)) or (reward and not turn[1]):
            raise ValueError(f"a turn is {shown(turn)}, with the reward {shown(reward)}")
        turns.append(Turn(turn[0], float(reward) if turn[1] else None))
    return Episode(tuple(turns), _field(row, "done"))


def read_lmrl_wordle(file: Path) -> Iterator[Episode]:
    """The games of Wordle in an LMRL-Gym file, in our world's format and with the file's rewards.

    The file's spaces make a byte pair tokeniser see single letters. It answers an invalid guess with an empty line; our
    world does not answer it.
    """
    return read_lines(file, lambda row: (_respelt(_lmrl_episode(row)),))


def _respelt(episode: Episode) -> Episode:
    """The game in our world's format; raises ValueError for an unknown format."""
    first, turns = episode.turns[:1], []
    if not first or first[0].is_action or first[0].text.strip() != "Wordle:":
        raise ValueError("it does not begin with 'Wordle:', as LMRL-Gym's do")
    for turn in episode.turns[1:]:
        letters = "".join(turn.text.split())
        if turn.is_action:
            turns.append(turn._replace(text=letters))
        elif re.fullmatch("[gyb]{5}", letters):
            turns.append(Turn("".join(f"<{colour}>" for colour in letters)))
        elif letters:
            raise ValueError(f"its answer {shown(turn.text)} is not five colours g, y or b, as LMRL-Gym's are")
    return episode._replace(turns=tuple(turns))


def read_visdial(file: Path, ranks: Path | None = None) -> Iterator[Episode]:
    """Yields visual dialogues as episodes: a caption, then the agent's questions and the answers.

    Each question has the reward -1, the last one 0. `ranks`: a file with a list of lists: the image's percentile rank
    after the caption, then its change per answer. A dialogue ends early where it has risen by the share REVEALED.
    """
    dialogues = _read_json_list(file)
    changes = _read_json_list(ranks) if ranks else [None] * len(dialogues)
    if len(changes) != len(dialogues):
        raise UserError(f"{str(ranks)!r} has {len(changes):,} dialogues, and {str(file)!r} {len(dialogues):,} ({FLAG})")
    for index, (dialogue, rank) in enumerate(zip(dialogues, changes, strict=True)):
        with legible(f"dialogue {index:,} of {str(file)!r}", FLAG, *WRONG):
            said = _field(dialogue, "dialog", list)
            questions = [(_field(one, "question", str), _field(one, "answer", str)) for one in said]
            last = len(questions) - 1
            if rank is not None:
                if not isinstance(rank, list) or len(rank) != len(questions) + 1 or not all(map(Number().allows, rank)):
                    raise ValueError(f"it has {len(questions)} rounds, and its ranks are {shown(rank)}")
                left, risen = 1.0 - rank[0], enumerate(itertools.accumulate(rank[1:]))
                last = next((at for at, rise in risen if left <= 0 or rise / left >= REVEALED), last)
            turns = [Turn(_field(dialogue, "caption", str))]
            for number, (question, answer) in enumerate(questions[: last + 1]):
                asked = question.removesuffix("?") + "?"
                turns += [Turn(asked, 0.0 if number == last else -1.0), Turn(answer)]
            episode = Episode(tuple(turns), terminal=True)
            check_episode(episode)
        yield episode


def read_reddit(files: Sequence[Path]) -> Iterator[Episode]:
    """Yields Reddit comments as episodes of two turns: the parent comment, and the agent's comment.

    The reward is 1 for comments with a score above 0, otherwise -1. `files`: CSV files, read one after another.
    """
    for file in files:
        rows = csv_rows(file)
        _, columns = next(rows, ("", []))
        for where, row in rows:
            with legible(f"{where} as a comment", FLAG, *WRONG):
                if len(row) != len(columns):
                    raise ValueError(f"it has {len(row)} values, and the first line {len(columns)}")
                values = dict(zip(columns, row, strict=True))
                score = float(int(_field(values, "score", str)))
                turns = (
                    Turn(_field(values, "parent_text", str)),
                    Turn(_field(values, "text", str), 1.0 if score > 0 else -1.0),
                )
            yield Episode(turns, terminal=True, info={"score": score})


def import_episodes(episodes: Iterable[Episode], path: Path, provenance: dict[str, Any]) -> Transcripts:
    """Writes imported episodes as a store, and opens it."""
    writer = TranscriptWriter()
    for number, episode in enumerate(episodes):
        with legible(f"episode {number:,}", FLAG, *WRONG):
            writer.add(episode)
    if not len(writer):
        names = ", ".join(map(repr, provenance.get("files", ()))) or "what is imported"
        raise UserError(f"there is no episode in {names}, so nothing was written to {str(path)!r} ({FLAG})")
    if not writer.turns().is_action.any():
        raise UserError(f"the episodes have no turn of an agent, so nothing can be learnt from them ({FLAG})")
    return writer.write(path, provenance, FLAG)


def csv_rows(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields the rows of a CSV file, each after "line N of FILE"; raises UserError for malformed CSV."""
    rows = csv.reader(line.decode() for _, line in _lines(file))
    try:
        for row in rows:
            yield f"line {rows.line_num:,} of {str(file)!r}", row
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"line {rows.line_num + 1:,} of {str(file)!r} is not CSV: {error} ({FLAG})") from error


def _read_json_list(file: Path) -> list[Any]:
    with legible(repr(str(file)), FLAG, RecursionError):
        values = json.loads(read_bytes(file, LARGEST_JSON))
        if not isinstance(values, list):
            raise ValueError("it is not a JSON list")
        return values


# The formats of TRL's trainers (docs/transcripts.md), one JSON object per line. The agent is the assistant.
#
# Where the world says nothing before a text of the agent, the user's message is empty, as TRL refuses empty prompts,
# and chat templates refuse two messages of the assistant in a row; such messages are not read.

FORMATS = ("messages", "turns", "preferences")
AGENT, WORLD = "assistant", "user"  # roles
ROLES = ("system", "developer", "tool", AGENT, WORLD)
Message = dict[str, str]


def read_trl(file: Path) -> Iterator[Episode]:
    """The episodes of a file in any of the formats; a preference has two."""
    return read_lines(file, _episodes)


def _episodes(row: Any) -> tuple[Episode, ...]:
    if not isinstance(row, dict):
        raise ValueError(f"it is {_kind(row)}, not an object: {shown(row)}")
    if "messages" in row:
        return (_episode(_messages(row, "messages", WORLD), row),)
    prompt = _messages(row, "prompt", WORLD) if "prompt" in row else []
    if "completion" in row:
        return (_episode([*prompt, *_completion(row, "completion")], row),)
    if "chosen" in row and "rejected" in row:
        pair = {"chosen": 1.0, "rejected": -1.0}.items()
        return tuple(_episode([*prompt, *_completion(row, name)], {"reward": reward}) for name, reward in pair)
    raise ValueError("it has neither messages, nor a prompt with a completion, nor a chosen and a rejected text")


def _completion(row: Any, name: str) -> list[Message]:
    messages = _messages(row, name, AGENT)
    if not any(message["role"] == AGENT for message in messages):
        raise ValueError(f"the assistant says nothing in {name!r}")
    return messages


def _messages(row: Any, name: str, role: str) -> list[Message]:
    """The messages of a field; see `spoken`."""
    return spoken(_field(row, name, str, list), role)


def spoken(value: Any, role: str) -> list[Message]:
    """The messages of a list, or of a text that `role` says, without empty ones of the world.

    Raises ValueError, or one of WRONG, for other values.
    """
    messages = [{"role": role, "content": value}] if isinstance(value, str) else value
    for message in messages:
        if (said := _field(message, "role", str)) not in ROLES:
            raise ValueError(f"'role' is {shown(said)}, not one of {', '.join(ROLES)}")
        _field(message, "content", str)
    return [message for message in messages if message["content"] or message["role"] == AGENT]


def _episode(messages: Sequence[Message], row: dict[str, Any]) -> Episode:
    """The episode of a conversation; `row` may have the columns that TRL ignores."""
    count = sum(message["role"] == AGENT for message in messages)
    if not count:
        raise ValueError("the assistant says nothing")
    rewards, last = row.get("rewards"), row.get("reward")
    if rewards is None and last is None and "label" in row:
        if row["label"] not in (True, False):
            raise ValueError(f"'label' is {_kind(row['label'])}, not true or false: {shown(row['label'])}")
        last = 1.0 if row["label"] else -1.0
    if rewards is None:
        rewards = [0.0] * (count - 1) + [0.0 if last is None else last]
    if not (isinstance(rewards, list) and all(map(Number().allows, rewards))):
        raise ValueError(f"its rewards are {shown(rewards)}, not numbers")
    if len(rewards) != count:
        raise ValueError(f"its rewards are {shown(rewards)}, for {count:,} turns of the assistant")
    left = map(float, rewards)
    turns = (Turn(message["content"], next(left) if message["role"] == AGENT else None) for message in messages)
    return Episode(tuple(turns), terminal=row.get("done", True))


# ---- the formats, by their names in the config


class VisualDialogues(TranscriptFormat):
    """A file of dialogues, and one of ranks."""

    def episodes(self, files: Sequence[Path], env: Mapping[str, Any], seed: int) -> Iterator[Episode]:
        if len(files) > 2:
            raise UserError(f"visdial is a file of dialogues and one of ranks, not {len(files)} files ({FLAG})")
        return read_visdial(*files)


class Comments(TranscriptFormat):
    """Files of comments that are read together."""

    def episodes(self, files: Sequence[Path], env: Mapping[str, Any], seed: int) -> Iterator[Episode]:
        return read_reddit(files)


LMRL, LMRL_WORDLE, TRL = Recorded(read_lmrl), Recorded(read_lmrl_wordle), Recorded(read_trl)
VISDIAL, REDDIT = VisualDialogues(), Comments()
