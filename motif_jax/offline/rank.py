"""Evaluation of values: whether they rank an expert's utterances above others, and the best utterances by them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from motif_jax.offline import losses, mdp
from motif_jax.offline.batch import next_tokens
from motif_jax.offline.values import Language, Params, apply_head, least
from motif_jax.transcripts.render import Rows


class Chosen(NamedTuple):
    """Values of the chosen tokens. [B, T] each; undefined for tokens of the environment."""

    q: jax.Array
    v: jax.Array


class Utterance(NamedTuple):
    """An utterance of the agent, with its advantage by the values."""

    row: int
    start: int  # position before its first token
    end: int  # position of its last token
    advantage: float  # the mean of Q - V over its tokens


def chosen_values(language: Language, of_q: Params, of_v: Params, rows: Rows) -> Chosen:
    """Computes Q and V per token, each from the hidden states of its own trunk.

    Args:
      language: the functions of the language model.
      of_q: "trunk" and "q", of the online networks or of their targets.
      of_v: "trunk" and "v" of the online networks.
      rows: the tokens.
    """
    hidden = language.hidden(of_q["trunk"], rows.tokens, rows.segments, None)
    q = losses.taken(least([apply_head(head, hidden) for head in of_q["q"]]), next_tokens(rows))
    hidden = language.hidden(of_v["trunk"], rows.tokens, rows.segments, None)
    return Chosen(q, apply_head(of_v["v"], hidden)[..., 0])


def rank_shares(better: np.ndarray, worse: np.ndarray) -> np.ndarray:
    """Returns the share of states in which the better action has the higher Q, per token; ties count half.

    Args:
      better, worse: Q at the last K tokens of two actions in the same states, from `last_values`. [N, K] each

    Returns:
      [K]
    """
    if better.shape != worse.shape or better.ndim != 2 or not len(better):
        raise ValueError(f"Q of shapes {better.shape} and {worse.shape} cannot be compared")
    return ((better > worse) + 0.5 * (better == worse)).mean(0)


def last_values(values: np.ndarray, rows: Rows, utterance: int, count: int) -> np.ndarray:
    """Returns values at the last `count` tokens of one utterance of each row. [B, count]

    Args:
      values: per token. [B, T]
      rows: one episode each.
      utterance: number of the utterance, from 0 on.
      count: number of tokens.
    """
    found = np.empty((len(values), count), values.dtype)
    for row, closes in enumerate(np.asarray(rows.closes)):
        ends = np.flatnonzero(closes)
        if utterance >= len(ends) or ends[utterance] + 1 < count:
            raise ValueError(f"row {row} has no utterance {utterance} of {count} tokens")
        found[row] = values[row, ends[utterance] + 1 - count : ends[utterance] + 1]
    return found


def top_advantages(chosen: Chosen, rows: Rows, count: int) -> list[Utterance]:
    """Returns the utterances of a batch with the highest mean advantage, best first."""
    gap = np.asarray(chosen.q) - np.asarray(chosen.v)
    steps = mdp.utterance_steps(rows)
    found = []
    for row, end in zip(*np.nonzero(np.asarray(steps.mask)), strict=True):
        start = int(steps.state[row, end])
        found.append(Utterance(int(row), start, int(end), float(gap[row, start:end].mean())))
    return sorted(found, key=lambda one: (-one.advantage, one.row, one.start))[:count]
