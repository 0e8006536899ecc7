"""Reads published formats of conversations, as a stream of episodes.

- LMRL-Gym: lines of JSON, {"sequence": [[text, is_action], ...], "reward": [...], "done": true}; one reward per text,
  or one per text except the first.
- Visual dialogue: a JSON list of {"caption", "dialog": [{"question", "answer"}, ...]}, and a file with a list of ranks.
- Reddit comments: CSV files whose header has the columns text, score and parent_text.

Errors name the file and the line. Pickles are never read. `tweets.py` reads tweeted games.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from motif_jax.config.table import shown
from motif_jax.structs import Episode, Turn, UserError, legible
from motif_jax.system.foreign import LONGEST_LINE, read_bytes
from motif_jax.transcripts.store import LARGEST, TranscriptWriter

FLAG = "--config.transcripts.import_from"
LARGEST_JSON = 2**30  # bytes of a file with one JSON value
MOST_TURNS = 100_000
REVEALED = 0.5  # a dialogue ends when the rank has risen by this share of the possible rise
HEADER = "Wordle:"  # of a game in LMRL-Gym
SCORED = ("text", "score", "parent_text")  # columns


def read_lmrl(file: Path) -> Iterator[Episode]:
    """Yields the episodes of an LMRL-Gym file."""
    for episodes in read_lines(file, lambda row: (_lmrl_episode(row),)):
        yield from episodes


def read_lines(file: Path, parse: Callable[[Any], tuple[Episode, ...]]) -> Iterator[tuple[Episode, ...]]:
    """Yields the episodes of each line of JSON; `parse` raises ValueError for a value without an episode."""
    with opened(file) as lines:
        for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE), b""), 1):
            where = f"line {number:,} of {str(file)!r}"
            if len(line) >= LONGEST_LINE:
                raise UserError(f"{where} is longer than {LONGEST_LINE:,} bytes ({FLAG})")
            if not line.strip():
                continue
            try:
                yield parse(_parsed(line))
            except ValueError as error:
                raise UserError(f"{where} is not an episode: {error} ({FLAG})") from error


def _lmrl_episode(row: Any) -> Episode:
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")
    for name, kind in (("sequence", list), ("reward", list), ("done", bool)):
        if not isinstance(row.get(name), kind):
            raise ValueError(f"its {name} is {shown(row.get(name))}")
    sequence, rewards = row["sequence"], row["reward"]
    if not len(rewards) <= len(sequence) <= min(len(rewards) + 1, MOST_TURNS):
        raise ValueError(f"it has {len(sequence):,} texts and {len(rewards):,} rewards")
    rewards = [0.0] * (len(sequence) - len(rewards)) + rewards
    turns = []
    for pair, reward in zip(sequence, rewards, strict=True):
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str) or pair[1] not in (0, 1):
            raise ValueError(f"a turn is {shown(pair)}, and not [text, is_action]")
        check_number(reward, "a reward")
        if reward and not pair[1]:
            raise ValueError(f"it gives the reward {reward} to a text of the environment")
        turns.append(Turn(pair[0], float(reward) if pair[1] else None))
    return Episode(tuple(turns), row["done"])


def read_lmrl_wordle(file: Path) -> Iterator[Episode]:
    """Yields the games of Wordle in an LMRL-Gym file, in our world's format and with the file's rewards.

        LMRL-Gym   Wordle:\\n       c r a n e\\n   b b y b g\\n        ...
        ours                      crane        <b><b><y><b><g>    ...

    The spaces make a byte pair tokeniser see single letters. LMRL-Gym answers an invalid guess with an empty line; our
    world does not answer it.
    """
    for number, episode in enumerate(read_lmrl(file)):
        try:
            yield episode._replace(turns=tuple(_respelt(episode.turns)))
        except ValueError as error:
            what = f"game {number:,} of {str(file)!r} is not written as LMRL-Gym writes Wordle"
            raise UserError(f"{what}: {error} ({FLAG})") from error


def _respelt(turns: Sequence[Turn]) -> Iterator[Turn]:
    """The turns in our world's format; raises ValueError for an unknown format."""
    if not turns or turns[0].is_action or turns[0].text.strip() != HEADER:
        raise ValueError(f"it does not begin with {HEADER!r}")
    for turn in turns[1:]:
        letters = "".join(turn.text.split())
        if turn.is_action:
            yield turn._replace(text=letters)
        elif re.fullmatch("[gyb]{5}", letters):
            yield Turn("".join(f"<{colour}>" for colour in letters))
        elif letters:
            raise ValueError(f"its answer {shown(turn.text)} is not five colours g, y or b")


def read_visdial(file: Path, ranks: Path | None = None) -> Iterator[Episode]:
    """Yields visual dialogues as episodes: a caption, then the agent's questions and the answers.

    Each question has the reward -1, the last one 0. A dialogue ends early when its rank has risen by half of the
    possible rise, as in ILQL's environment.

    Args:
      file: the dialogues.
      ranks: a file with a list of lists: the image's percentile rank after the caption, then its change per answer.
    """
    dialogues = _read_json_list(file)
    changes = _read_json_list(ranks) if ranks else None
    if changes is not None and len(changes) != len(dialogues):
        raise UserError(f"{str(ranks)!r} has {len(changes):,} dialogues, and {str(file)!r} {len(dialogues):,} ({FLAG})")
    for index, dialogue in enumerate(dialogues):
        try:
            yield _visdial_episode(dialogue, None if changes is None else changes[index])
        except ValueError as error:
            raise UserError(f"dialogue {index:,} of {str(file)!r} cannot be used: {error} ({FLAG})") from error


def _visdial_episode(dialogue: Any, rank: Any) -> Episode:
    if not isinstance(dialogue, dict) or not isinstance(dialogue.get("dialog"), list):
        raise ValueError("it is not an object with a dialog")
    rounds = dialogue["dialog"]
    if rank is not None:
        if not isinstance(rank, list) or len(rank) != len(rounds) + 1:
            raise ValueError(f"it has {len(rounds)} rounds, and its ranks are {shown(rank)}")
        for number in rank:
            check_number(number, "a rank")
    questions: list[tuple[str, str]] = []
    for exchange in rounds[:MOST_TURNS]:
        if not isinstance(exchange, dict):
            raise ValueError(f"a round is {shown(exchange)}")
        question, answer = (_text(exchange, name) for name in ("question", "answer"))
        questions.append((question if question.endswith("?") else question + "?", answer))
    last = len(questions) - 1
    if rank is not None:
        risen, left = 0.0, 1.0 - rank[0]
        for index, change in enumerate(rank[1:]):
            risen += change
            if left <= 0 or risen / left >= REVEALED:
                last = index
                break
    turns = [Turn(_text(dialogue, "caption"))]
    for index, (question, answer) in enumerate(questions[: last + 1]):
        turns += [Turn(question, 0.0 if index == last else -1.0), Turn(answer)]
    return Episode(tuple(turns), terminal=True)


def read_reddit(files: Sequence[Path]) -> Iterator[Episode]:
    """Yields Reddit comments as episodes of two turns: the parent comment, and the agent's comment.

    The reward is 1 for comments with a score above 0, otherwise -1. `files`: CSV files, read one after another.
    """
    for file in files:
        columns: list[int] = []
        for where, row in csv_rows(file):
            if not columns:
                if missing := [name for name in SCORED if name not in row]:
                    raise UserError(f"{where} does not name the column {missing[0]!r} ({FLAG})")
                columns, width = [row.index(name) for name in SCORED], len(row)
                continue
            if len(row) != width:
                raise UserError(f"{where} has {len(row)} values, expected {width} ({FLAG})")
            text, votes, parent = (row[column] for column in columns)
            if not re.fullmatch(r"-?[0-9]{1,15}", votes):
                raise UserError(f"{where} has the score {shown(votes)} ({FLAG})")
            turns = Turn(parent), Turn(text, 1.0 if int(votes) > 0 else -1.0)
            yield Episode(turns, terminal=True, info={"score": float(votes)})


def import_episodes(episodes: Iterable[Episode], path: Path, provenance: dict[str, Any]) -> Any:
    """Writes imported episodes as a store, and opens it."""
    writer, number, acts = TranscriptWriter(), -1, False
    for number, episode in enumerate(episodes):
        acts = acts or any(turn.is_action for turn in episode.turns)
        try:
            writer.add(episode)
        except ValueError as error:
            raise UserError(f"episode {number:,} cannot be imported: {error} ({FLAG})") from error
    if number >= 0 and not acts:
        raise UserError(f"the episodes have no turn of an agent, so nothing can be learnt from them ({FLAG})")
    return writer.write(path, provenance, FLAG)


def opened(file: Path) -> BinaryIO:
    """An open file; raises UserError if it cannot be read."""
    with legible(repr(str(file)), FLAG):
        return open(file, "rb")


def csv_rows(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields the rows of a CSV file, each after "line N of FILE"; raises UserError for malformed CSV."""
    with opened(file) as binary, io.TextIOWrapper(binary, "utf-8", newline="") as lines:
        rows = csv.reader(_bounded(lines))
        try:
            for row in rows:
                yield f"line {rows.line_num:,} of {str(file)!r}", row
        except (csv.Error, UnicodeDecodeError) as error:
            raise UserError(f"line {rows.line_num + 1:,} of {str(file)!r} is not CSV: {error} ({FLAG})") from error


def _bounded(lines: io.TextIOWrapper) -> Iterator[str]:
    for line in iter(lambda: lines.readline(LONGEST_LINE), ""):
        if len(line) >= LONGEST_LINE:
            raise csv.Error(f"it has more than {LONGEST_LINE:,} characters")
        yield line


def _parsed(text: str | bytes) -> Any:
    """The value of a JSON text; raises ValueError, with one line, for anything else."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _read_json_list(file: Path) -> list[Any]:
    with legible(repr(str(file)), FLAG):
        values = _parsed(read_bytes(file, LARGEST_JSON))
        if not isinstance(values, list):
            raise ValueError("it is not a JSON list")
        return values


def _text(row: dict[str, Any], name: str) -> str:
    if not isinstance(row.get(name), str):
        raise ValueError(f"its {name} is {shown(row.get(name))}")
    return str(row[name])


def check_number(value: Any, what: str) -> None:
    """Raises ValueError if a value is not a finite number of float32."""
    if type(value) not in (int, float) or not abs(value) <= LARGEST:  # also refuses NaN
        raise ValueError(f"{what} is {shown(value)}, not a finite number")
