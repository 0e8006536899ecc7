"""Evaluates learnt values: the texts with the highest advantages, and ranks of an expert's texts.

The ranks need transcripts with branches (`--config.collect.branch_player`), in which the expert and another player
write different texts in the same moment. ILQL's scripts top_advantage and eval_q_rank do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.language.model import ModelFunctions
from motif_jax.offline import mdp
from motif_jax.offline.update import OfflineState, next_tokens
from motif_jax.offline.values import Params, apply_head, least, taken
from motif_jax.transcripts.render import Renderer, Rows
from motif_jax.transcripts.store import Transcripts

ROWS = 64  # episodes per batch
MOST_EPISODES = 1024  # searched for the best texts
MOST_PAIRS = 4096  # compared
LISTED = 20
TOKENS = 6  # last tokens of a text whose values are compared: a guess's letters and its end mark


class Chosen(NamedTuple):
    """Values of the chosen tokens. [B, T] each; undefined for tokens of the environment."""

    q: jax.Array
    v: jax.Array


ReadValues = Callable[[Rows], Chosen]


class Rankings(NamedTuple):
    """The results for the report."""

    best: list[dict[str, Any]]  # texts with the highest advantages
    ranks: dict[str, Any]  # shares in which the expert's text has the higher Q, by the number of the text


class Text(NamedTuple):
    """Values of the tokens of one of the agent's texts. [tokens] each"""

    q: np.ndarray
    v: np.ndarray
    is_decision: bool  # its successor is known


def make_readers(language: ModelFunctions, state: OfflineState, bounds: tuple[float, float]) -> dict[str, ReadValues]:
    """Makes functions that compute Q and V of tokens, each from the hidden states of its own trunk.

    "online": Q of the learnt networks. "target": Q of the target networks, clipped to `bounds`, as in training and
    decoding. V is always that of the learnt networks.
    """

    @jax.jit
    def chosen(of_q: Params, of_v: Params, rows: Rows) -> Chosen:
        hidden = language.hidden(of_q["trunk"], rows.tokens, rows.segments, None)
        q = taken(least([apply_head(head, hidden) for head in of_q["q"]]), next_tokens(rows))
        hidden = language.hidden(of_v["trunk"], rows.tokens, rows.segments, None)
        return Chosen(q, apply_head(of_v["v"], hidden)[..., 0])

    def read_target(rows: Rows) -> Chosen:
        values = chosen(state.target, state.learnt, rows)
        return values._replace(q=values.q.clip(*bounds))

    return {"online": lambda rows: chosen(state.learnt, state.learnt, rows), "target": read_target}


def read_texts(read: ReadValues, renderer: Renderer, episodes: np.ndarray, width: int) -> Iterator[dict[int, Text]]:
    """Yields, for each episode, the agent's texts that end within its row of `width` tokens, by their numbers."""
    for start in range(0, len(episodes), ROWS):
        numbers = episodes[start : start + ROWS]
        rows = renderer.rows(np.resize(numbers, ROWS), width)  # padded with copies, as each number would be compiled
        q, v = (np.asarray(values) for values in read(rows))
        decisions = np.asarray(mdp.utterance_steps(rows).mask)
        before = renderer.texts_before(numbers, width).tolist()
        for row in range(len(numbers)):
            chosen, ends = np.flatnonzero(rows.is_action[row]), np.flatnonzero(rows.closes[row]) + 1
            parts = zip(np.split(chosen, np.searchsorted(chosen, ends)), ends, strict=False)  # the last part is torn
            texts = [Text(q[row, part], v[row, part], bool(decisions[row, end])) for part, end in parts]
            yield dict(enumerate(texts, before[row]))


def best_texts(
    read: ReadValues, renderer: Renderer, transcripts: Transcripts, episodes: np.ndarray, width: int
) -> list[Any]:
    """The agent's texts with the highest mean of Q - V, the best first: [{"text", "before", "advantage"}].

    `episodes`: numbers of the episodes to search. `width`: the number of tokens that are read of each.
    """
    episodes, candidates = episodes[:MOST_EPISODES], []
    for number, texts in zip(episodes.tolist(), read_texts(read, renderer, episodes, width), strict=True):
        for index, text in texts.items():
            if text.is_decision:
                candidates.append((-float((text.q - text.v).mean()), number, index))
    listed: dict[tuple[str, str], float] = {}
    for loss, number, index in sorted(candidates):
        turns = transcripts.episode(number).turns
        at = [at for at, turn in enumerate(turns) if turn.is_action][index]
        before = turns[at - 1].text if at and not turns[at - 1].is_action else ""
        listed.setdefault((turns[at].text, before), -loss)
    top = list(listed.items())[:LISTED]
    return [{"text": text, "before": before, "advantage": round(value, 4)} for (text, before), value in top]


def ranks(readers: dict[str, ReadValues], renderer: Renderer, transcripts: Transcripts, width: int) -> dict[str, Any]:
    """Compares Q of the expert's text with Q of the other player's in the same moment, by the text's number.

    {"1": {"pairs": N, "online": [share at each of the last tokens], "target": [...]}, ...}; {} without branches.
    """
    results: dict[str, Any] = {}
    for number, pairs in sorted(_pairs(transcripts).items()):
        for name, read in readers.items():
            each = (read_texts(read, renderer, episodes, width) for episodes in pairs[:MOST_PAIRS].T)
            both = []
            for pair in zip(*each, strict=True):
                if all(number in texts for texts in pair):  # both texts are within the width
                    both.append([texts[number].q for texts in pair])
            if not both:
                break
            count = min(TOKENS, *(len(q) for pair in both for q in pair))
            better, worse = (np.stack([q[-count:] for q in player]) for player in zip(*both, strict=True))
            ranked = ((better > worse) + 0.5 * (better == worse)).mean(0)  # ties count half
            shares = [round(float(share), 4) for share in ranked]
            results.setdefault(str(number + 1), {"pairs": len(both)})[name] = shares
    return results


def _pairs(transcripts: Transcripts) -> dict[int, np.ndarray]:
    """The number of a text, from 0, -> episodes of the expert and of a branch that are equal before it. [N, 2]

    Branches whose text is the expert's, too, are left out.
    """
    if not {"episode", "branch", "shared"} <= transcripts.info.keys():
        return {}
    info = {name: np.asarray(transcripts.info[name]).astype(np.int64) for name in ("episode", "branch", "shared")}
    experts = {int(info["episode"][at]): at for at in np.flatnonzero(info["branch"] == 0).tolist()}
    before = np.concatenate([[0], np.cumsum(transcripts.is_action)])
    pairs: dict[int, list[tuple[int, int]]] = {}
    for branch in np.flatnonzero(info["branch"] > 0).tolist():
        expert = experts.get(int(info["episode"][branch]))
        if expert is None:
            continue
        pair = np.array([expert, branch])
        turns = transcripts.starts[pair] + info["shared"][branch]  # where they may differ first
        if (turns < transcripts.ends[pair]).all() and transcripts.text[turns[0]] != transcripts.text[turns[1]]:
            number = int(before[turns[1]] - before[transcripts.starts[branch]])
            pairs.setdefault(number, []).append((expert, branch))
    return {number: np.array(episodes) for number, episodes in pairs.items()}
