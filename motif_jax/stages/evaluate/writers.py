"""Policies that write, in an evaluation: loads them, and writes the probabilities of their tokens in kept episodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from motif_jax.console import print_line
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.envs.own_code import reported
from motif_jax.envs.protocols import is_variation
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import to_text
from motif_jax.envs.worlds import make_world
from motif_jax.episodes.playback import Track, begin
from motif_jax.files import write_json
from motif_jax.offline.recipes import Recipe
from motif_jax.policies.decoding import Decoding, describe_unused
from motif_jax.policies.values import read_values
from motif_jax.policies.writing import Probabilities, ValueWriter
from motif_jax.stages.evaluate.contenders import Contender
from motif_jax.structs import Turn, UserError
from motif_jax.transcripts.live import ConversationTokens

MOST_LIKELY = 4  # tokens shown of each distribution
LONGEST = 64  # tokens of a text; the rest is left out


class LoadedWriter(NamedTuple):
    """A policy that writes."""

    writer: ValueWriter
    checksum: str  # of its parameters


# By path and step, all policies loaded so far; only the last one stays in memory, the others are None.
Writers = dict[tuple[str, int], LoadedWriter | None]


def load_writer(config: ConfigDict, workdir: Path, contender: Contender, flag: str, loaded: Writers) -> LoadedWriter:
    """The policy that writes of a contender, from `loaded` or from its checkpoint.

    Raises UserError if it was trained in another world, or if its decoding needs values that it has not learnt.
    """
    assert contender.decoding
    key = contender.path, contender.step
    found = loaded.get(key)
    if not found:
        reported = key in loaded
        loaded.update(dict.fromkeys(loaded))
        folder = contender.folder(workdir)
        try:
            model, facts = read_values(folder, str(contender.step))
        except UserError as error:
            raise UserError(f"{error} ({flag})") from error
        if reason := make_world(config.env).plays(facts):
            raise UserError(f"the policy in {str(folder)!r} {reason} ({flag}, --config.env)")
        if not reported:
            name = contender.name.removesuffix(f"-{contender.decoding.name}")
            report_other_games(name, facts["config"]["env"], config)
        found = loaded[key] = LoadedWriter(ValueWriter(model), model.checksum())
    found.writer.check(contender.decoding)
    return found


def check_writers(
    config: ConfigDict, workdir: Path, contenders: Iterable[tuple[Contender, str]], loaded: Writers
) -> None:
    """Loads every policy that writes, so that errors come before the first game; reports values without effect.

    Each contender comes with the flag that names it.
    """
    decodings: dict[tuple[str, Recipe], list[Decoding]] = {}
    for contender, flag in contenders:
        if contender.decoding:
            recipe = load_writer(config, workdir, contender, flag, loaded).writer.model.recipe
            decodings.setdefault((contender.path, recipe), []).append(contender.decoding)
    for (_, recipe), several in decodings.items():
        for line in describe_unused(recipe, several):
            print_line(f"evaluate: {line}")


def report_other_games(name: str, trained: dict[str, Any], config: ConfigDict) -> None:
    """Prints a line if a policy plays other games than it was trained on; this may be intended.

    In variations it is, and other differences were reported with the unvaried games.
    """
    if is_variation(config.evaluate.protocol):
        return
    now, before = leaves_by_path(config.env.to_dict()), leaves_by_path(trained)
    keys = [key for key in sorted(now) if before.get(key, now[key]) != now[key]]
    other = [f"{'.'.join(key)} = {before[key]!r}, not {now[key]!r}" for key in keys]
    if other:
        print_line(f"evaluate: {name} was trained with {'; '.join(other)} (--config.env)")


def write_letters(
    config: ConfigDict, file: Path, writer: ValueWriter, decoding: Decoding, tracks: Mapping[int, Track]
) -> None:
    """Writes {"episodes": {number: [turn, ...]}}: probabilities of the policy alone, and with beta (Q - V).

    A turn is {"said": text, "heard": the answer, "reward", "tokens": [{"token", "policy": [[token, p], ...],
    "shifted": [[token, p], ...], "advantage": Q - V of the token, or null}]}.
    """
    world = make_world(config.env)
    assert isinstance(world, TextWorld)
    found = {}
    for number, track in sorted(tracks.items()):
        with reported(config.env):
            game = world.game(shown=False)
            begin(game, config.seed, number)
            for action in track.action.tolist():
                game.say(to_text(action))
            turns = game.turns
            game.close()
        found[str(number)] = turns_of(writer, decoding, turns)
    write_json(file, {"episodes": found})


def turns_of(writer: ValueWriter, decoding: Decoding, turns: list[Turn]) -> list[dict[str, Any]]:
    """The agent's texts in a conversation, as `write_letters` describes them."""
    renderer, longest = writer.model.renderer, writer.model.config.max_positions
    heard_first = bool(turns) and not turns[0].is_action
    talk = ConversationTokens(renderer, turns[0].text if heard_first else "", longest, decoding.max_tokens)
    read: list[list[int]] = []  # the conversation, and again from each text at which it begins anew
    spans: list[tuple[int, int, int]] = []  # of the agent's texts: which of `read`, start, stop
    found: list[dict[str, Any]] = []
    for at in range(heard_first, len(turns)):
        turn = turns[at]
        if not turn.is_action:
            talk.heard(turn.text)
            continue
        answer = turns[at + 1].text if at + 1 < len(turns) and not turns[at + 1].is_action else ""
        found.append({"said": turn.text, "heard": answer, "reward": turn.reward, "tokens": []})
        start, said = len(talk.context()), renderer.said(turn.text)
        talk.said(said)
        if not read or start < len(read[-1]):
            read.append([])
        read[-1] = talk.tokens
        spans.append((len(read) - 1, start, start + min(len(said), LONGEST)))
    known = [writer.probabilities(tokens, decoding) for tokens in read]
    for turn_found, (number, start, stop) in zip(found, spans, strict=True):
        places = range(start, min(stop, len(known[number].policy)))  # no text goes beyond the model's context
        turn_found["tokens"] = [_one_token(writer, known[number], at - 1, read[number][at]) for at in places]
    return found


def _one_token(writer: ValueWriter, known: Probabilities, before: int, token: int) -> dict[str, Any]:
    """A token with the probabilities at the position `before` it."""
    return {
        "token": writer.name_of(token),
        "policy": _likely(writer, known.policy[before]),
        "shifted": _likely(writer, known.shifted[before]),
        "advantage": None if known.advantage is None else round(float(known.advantage[before, token]), 3),
    }


def _likely(writer: ValueWriter, odds: np.ndarray) -> list[list[Any]]:
    """The most probable tokens, with their probabilities."""
    order = np.argsort(-odds, kind="stable")[:MOST_LIKELY].tolist()
    return [[writer.name_of(token), round(float(odds[token]), 4)] for token in order if odds[token] > 0]
