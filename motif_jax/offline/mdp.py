"""Tokens as decisions (ILQL, arXiv 2206.11871), with their rewards and successors.

Per token, the state is all tokens up to a position, and the action is the next token; only positions before the agent's
tokens are decisions. The environment's tokens are skipped: the successor of an utterance's last decision is the first
decision of the next utterance, or the episode's last token. Two guesses of Wordle, the second one right:

    position   0    1 2 3 4 5  6     7 8 9 10 11  12    13 ... 17  18    19 ... 23  24    25
    token      <a>  c r a n e  </a>  b b y b  g   </s>  a b i d e  </a>  ggggg      </s>  </eod>
    decision   x    x x x x x                     x     x x x x x
    successor  1    2 3 4 5 12                    13    ...   25 (terminal)
    reward                  -1                                0

Per utterance, the state is the first decision's, and the action is the whole utterance. Rows may hold several episodes
as separate segments.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.transcripts.render import CUT, TERMINAL, Rows


class Decisions(NamedTuple):
    """Decisions by position; where `mask` is false, the other fields are undefined. [B, T] each"""

    mask: jax.Array  # bool
    state: jax.Array  # position at which the value of the state is read. int32
    next_state: jax.Array  # position at which the value of the successor is read. int32
    next_step: jax.Array  # position of the next decision, or of the successor after the last one. int32
    reward: jax.Array  # float32
    terminal: jax.Array  # the episode ended with this decision. bool


def token_steps(rows: Rows) -> Decisions:
    """Returns decisions for tokens, at the positions before them."""
    positions = jnp.arange(rows.tokens.shape[1])
    last = last_of_segment(rows.segments)
    mask = jnp.asarray(rows.is_action)
    following = _after(mask)
    is_last = following > last
    next_state = jnp.minimum(following, last)
    end = jnp.take_along_axis(jnp.asarray(rows.end), last, 1)
    state = jnp.broadcast_to(positions, mask.shape)
    usable = mask & ~(is_last & (end == CUT))  # the successor of a cut episode's last decision is unknown
    return Decisions(usable, state, next_state, next_state, jnp.asarray(rows.reward), is_last & (end == TERMINAL))


def utterance_steps(rows: Rows, followed: bool = False) -> Decisions:
    """Returns decisions for utterances, at their last token, where the value of the utterance is read.

    `followed`: only decisions that end their episode or have a successor in the row.
    """
    positions = jnp.arange(rows.tokens.shape[1])
    last = last_of_segment(rows.segments)
    ends = _shifted(jnp.asarray(rows.closes))  # at the last token of an utterance
    reward = _shifted(jnp.asarray(rows.reward))
    starts = utterance_starts(rows)
    state = jax.lax.cummax(jnp.where(_shifted(starts), positions - 1, 0), axis=1)
    # If the environment is silent, the next utterance starts at the last token of this one.
    following = jax.lax.cummin(jnp.where(starts, positions, len(positions)), axis=1, reverse=True)
    is_last = following > last
    end = jnp.take_along_axis(jnp.asarray(rows.end), last, 1)
    next_state, next_step = jnp.minimum(following, last), jnp.minimum(_after(ends), last)
    terminal = is_last & (end == TERMINAL)
    usable = ends & ~(is_last & (end == CUT))
    if followed:
        usable &= terminal | (_after(ends) <= last)
    return Decisions(usable, state, next_state, next_step, reward, terminal)


def returns_to_go(rows: Rows, discount: float) -> jax.Array:
    """Returns the sum of rewards from each token of the agent on, discounted once per such token. [B, T]

    At other tokens, it is that of the agent's next one. The `Renderer` must have the same discount, which it applies to
    the rewards that it cuts off.
    """
    factor = jnp.where(jnp.asarray(rows.is_action), discount, 1.0)
    segments = jnp.asarray(rows.segments)
    goes_on = jnp.pad(segments[:, 1:] == segments[:, :-1], ((0, 0), (0, 1)))

    def back(later: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward, factor = now
        to_go = reward + factor * later
        return to_go, to_go

    columns = jnp.asarray(rows.reward).T, (factor * goes_on).T
    return jax.lax.scan(back, jnp.zeros(len(segments)), columns, reverse=True)[1].T


def episode_returns(rows: Rows) -> jax.Array:
    """Returns the sum of rewards of each position's episode, if the `Renderer` has the discount 1. [B, T]"""
    reward, first = jnp.asarray(rows.reward), first_of_segment(rows.segments)
    before = jnp.pad(jnp.cumsum(reward, 1), ((0, 0), (1, 0)))
    sums = [jnp.take_along_axis(before, at, 1) for at in (last_of_segment(rows.segments) + 1, first)]
    return sums[0] - sums[1]


def first_of_segment(segments: jax.Array) -> jax.Array:
    """Returns the first position of each position's segment. [B, T] int32"""
    positions = jnp.arange(segments.shape[1])
    begins = jnp.pad(segments[:, 1:] != segments[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    return jax.lax.cummax(jnp.where(begins, positions, 0), axis=1)


def last_of_segment(segments: jax.Array) -> jax.Array:
    """Returns the last position of each position's segment. [B, T] int32"""
    positions = jnp.arange(segments.shape[1])
    ends = jnp.pad(segments[:, 1:] != segments[:, :-1], ((0, 0), (0, 1)), constant_values=True)
    return jax.lax.cummin(jnp.where(ends, positions, len(positions)), axis=1, reverse=True)


def utterance_starts(rows: Rows) -> jax.Array:
    """Marks the positions before utterances' first tokens. [B, T] bool"""
    acts = jnp.asarray(rows.is_action)
    goes_on = _shifted(acts & ~jnp.asarray(rows.closes))
    same = jnp.pad(rows.segments[:, 1:] == rows.segments[:, :-1], ((0, 0), (1, 0)))  # segment as one position before
    return acts & ~(goes_on & same)


def _shifted(mask: jax.Array) -> jax.Array:
    """Shifts by one position to the right. [B, T]"""
    return jnp.pad(mask, ((0, 0), (1, 0)))[:, :-1]


def _after(mask: jax.Array) -> jax.Array:
    """Returns the first later position in the mask, or T. [B, T] int32"""
    size = mask.shape[1]
    at_or_after = jax.lax.cummin(jnp.where(mask, jnp.arange(size), size), axis=1, reverse=True)
    return jnp.pad(at_or_after[:, 1:], ((0, 0), (0, 1)), constant_values=size)
