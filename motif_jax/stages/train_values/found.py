"""What values have found out: the texts that they find best, and whether they prefer an expert's texts to another's.

The second needs transcripts with branches (`--config.collect.branch_player`): in the same moment the expert has said
one thing and the other player another. Of ILQL's scripts, these are top_advantage and eval_q_rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from motif_jax.offline.rank import Chosen, chosen_values, last_values, rank_shares, top_advantages
from motif_jax.offline.update import OfflineState
from motif_jax.offline.values import Language
from motif_jax.transcripts.render import Renderer, Rows
from motif_jax.transcripts.store import Transcripts

ROWS = 64  # episodes that are looked at together
MOST_EPISODES = 1024  # that are searched for the best texts
MOST_PAIRS = 4096  # that are compared
LISTED = 20
TOKENS = 6  # at the end of a text, of which values are compared: the letters of a guess and its end mark

ReadValues = Callable[[Rows], Chosen]


def make_readers(language: Language, state: OfflineState, bounds: tuple[float, float]) -> dict[str, ReadValues]:
    """Q and V of what was said: Q of the networks themselves ("online"), or of their targets ("target") and within
    `bounds`, as in training and decoding; V is always that of the networks themselves.
    """
    chosen = jax.jit(lambda *arguments: chosen_values(language, *arguments))
    learnt, target = state.learnt, state.target

    def read_target(rows: Rows) -> Chosen:
        found = chosen(target, learnt, rows)
        return found._replace(q=found.q.clip(*bounds))

    return {"online": lambda rows: chosen(learnt, learnt, rows), "target": read_target}


def best_texts(
    read: ReadValues, renderer: Renderer, transcripts: Transcripts, episodes: np.ndarray, width: int
) -> list[Any]:
    """The agent's texts with the highest mean of Q - V, the best first: [{"text", "before", "advantage"}].

    `episodes` are numbers of those that are searched, `width` the tokens that are read of each.
    """
    found = []
    for numbers, rows in _batches(renderer, episodes[:MOST_EPISODES], width):
        for one in top_advantages(read(rows), rows, rows.tokens.size):
            if one.row < len(numbers):  # others fill up the batch
                said = int(np.asarray(rows.closes)[one.row, : one.end].sum()) - 1  # which of the agent's texts it is
                found.append((one.advantage, int(numbers[one.row]), said))
    found.sort(key=lambda one: (-one[0], one[1], one[2]))
    listed: dict[tuple[str, str], float] = {}
    for advantage, number, said in found:
        turns = transcripts.episode(number).turns
        place = [at for at, turn in enumerate(turns) if turn.is_action][said]
        before = turns[place - 1].text if place and not turns[place - 1].is_action else ""
        listed.setdefault((turns[place].text, before), advantage)
    top = list(listed.items())[:LISTED]
    return [{"text": text, "before": before, "advantage": round(value, 4)} for (text, before), value in top]


def ranks(readers: dict[str, ReadValues], renderer: Renderer, transcripts: Transcripts, width: int) -> dict[str, Any]:
    """How often the expert's text has the higher Q than the other's in the same moment, by the number of the text.

    Returns:
      {"1": {"pairs": N, "online": [share at each of the last tokens], "target": [...]}, ...}; {} without branches.
    """
    pairs = _pairs(transcripts)
    found: dict[str, Any] = {}
    for number, both in sorted(pairs.items()):
        said = [_tokens_of(renderer, column, number, width) for column in both[:MOST_PAIRS].T]
        kept = np.minimum(*said) > 0  # both texts are within the width
        if not kept.any():
            continue
        count = min(TOKENS, int(np.minimum(*said)[kept].min()))
        chosen = both[:MOST_PAIRS][kept]
        shares = {}
        for name, read in readers.items():
            values = [_last_q(read, renderer, column, number, count, width) for column in chosen.T]
            shares[name] = [round(float(share), 4) for share in rank_shares(*values)]
        found[str(number + 1)] = {"pairs": len(chosen), **shares}
    return found


def _pairs(transcripts: Transcripts) -> dict[int, np.ndarray]:
    """By the number of a text, from 0 on: episodes of the expert and of a branch, alike until there. [N, 2]

    Where the other player happens to say what the expert has said, there is nothing to compare.
    """
    if not {"episode", "branch", "shared"} <= transcripts.info.keys():
        return {}
    info = {name: np.asarray(transcripts.info[name]).astype(np.int64) for name in ("episode", "branch", "shared")}
    experts = {int(info["episode"][at]): at for at in np.flatnonzero(info["branch"] == 0).tolist()}
    before = np.concatenate([[0], np.cumsum(transcripts.is_action)])
    found: dict[int, list[tuple[int, int]]] = {}
    for branch in np.flatnonzero(info["branch"] > 0).tolist():
        expert = experts.get(int(info["episode"][branch]))
        if expert is None:
            continue
        pair = np.array([expert, branch])
        turns = transcripts.starts[pair] + info["shared"][branch]  # where they may differ first
        if (turns < transcripts.ends[pair]).all() and transcripts.text[turns[0]] != transcripts.text[turns[1]]:
            number = int(before[turns[1]] - before[transcripts.starts[branch]])
            found.setdefault(number, []).append((expert, branch))
    return {number: np.array(both) for number, both in found.items()}


def _tokens_of(renderer: Renderer, episodes: np.ndarray, utterance: int, width: int) -> np.ndarray:
    """How many tokens the agent's text of this number has in each episode; 0 if it is not whole in the width."""
    found = []
    for numbers, rows in _batches(renderer, episodes, width):
        for row in range(len(numbers)):
            ends = np.flatnonzero(rows.closes[row])
            begins = ends[utterance - 1] + 1 if utterance and utterance < len(ends) else 0
            whole = utterance < len(ends)
            found.append(int(rows.is_action[row, begins : ends[utterance] + 1].sum()) if whole else 0)
    return np.array(found)


def _last_q(
    read: ReadValues, renderer: Renderer, episodes: np.ndarray, utterance: int, count: int, width: int
) -> np.ndarray:
    """Q at the last tokens of one text of each episode. [N, count]"""
    found = []
    for numbers, rows in _batches(renderer, episodes, width):
        found.append(last_values(np.asarray(read(rows).q), rows, utterance, count)[: len(numbers)])
    return np.concatenate(found)


def _batches(renderer: Renderer, episodes: np.ndarray, width: int) -> Iterator[tuple[np.ndarray, Rows]]:
    """Rows of ROWS episodes each, of which the last are copies where fewer are left; and the numbers of the others."""
    for start in range(0, len(episodes), ROWS):
        numbers = episodes[start : start + ROWS]
        yield numbers, renderer.rows(np.resize(numbers, ROWS), width)
