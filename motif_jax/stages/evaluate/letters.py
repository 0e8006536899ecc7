"""Probabilities of each token in the kept episodes: of the policy alone, and with beta (Q - V)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.envs.own_code import reported
from motif_jax.envs.settings import make_world
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import to_text
from motif_jax.episodes.playback import Track, begin
from motif_jax.policies.decoding import Decoding
from motif_jax.policies.writing import Probabilities, ValueWriter
from motif_jax.stages.evaluate.play import Playing
from motif_jax.structs import Turn
from motif_jax.system.files import write_json

MOST_LIKELY = 4  # tokens shown of each distribution
LONGEST = 64  # tokens of a text; the rest is left out


def write_letters(config: ConfigDict, file: Path, playing: Playing, tracks: Mapping[int, Track]) -> None:
    """Writes {"episodes": {number: [turn, ...]}}.

    A turn is {"said": text, "heard": the answer, "reward", "tokens": [{"token", "policy": [[token, p], ...],
    "shifted": [[token, p], ...], "advantage": Q - V of the token, or null}]}.
    """
    assert playing.writer
    assert playing.decoding
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
        found[str(number)] = turns_of(playing.writer, playing.decoding, turns)
    write_json(file, {"episodes": found})


def turns_of(writer: ValueWriter, decoding: Decoding, turns: list[Turn]) -> list[dict[str, Any]]:
    """The agent's texts in a conversation, as `write_letters` describes them."""
    renderer = writer.model.renderer
    heard_first = bool(turns) and not turns[0].is_action
    tokens = renderer.begin(turns[0].text if heard_first else "")
    spans: list[tuple[int, int]] = []
    found: list[dict[str, Any]] = []
    for at in range(heard_first, len(turns)):
        turn = turns[at]
        more = renderer.said(turn.text) if turn.is_action else renderer.heard(turn.text)
        if turn.is_action:
            answer = turns[at + 1].text if at + 1 < len(turns) and not turns[at + 1].is_action else ""
            found.append({"said": turn.text, "heard": answer, "reward": turn.reward, "tokens": []})
            spans.append((len(tokens), len(tokens) + min(len(more), LONGEST)))
        tokens = tokens + more
    known = writer.probabilities(tokens, decoding)
    for turn_found, (start, stop) in zip(found, spans, strict=True):
        places = range(start, min(stop, len(known.policy)))  # the policy does not write beyond the model's context
        turn_found["tokens"] = [_one_token(writer, known, place - 1, tokens[place]) for place in places]
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
