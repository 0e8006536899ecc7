"""Decisions, rewards and successors of tokens, beside an obvious walk, and in rows that are cut."""

import numpy as np
import pytest
import slow_terms
from talks import Letters, random_store
from tiny_decoder import random_rows

from motif_jax.offline import mdp
from motif_jax.structs import Episode, Turn
from motif_jax.transcripts.render import TEMPLATES, Renderer
from motif_jax.transcripts.store import turns_of

pytestmark = pytest.mark.quick


def decisions_of(steps, row=0):
    """{position: (next state, reward, terminal)} of a row's decisions."""
    places = np.flatnonzero(steps.mask[row]).tolist()
    return {
        place: (int(steps.next_state[row, place]), float(steps.reward[row, place]), bool(steps.terminal[row, place]))
        for place in places
    }


@pytest.mark.differs(
    "ilql",
    there="CQL and psi-learning expect 0 after the last decision before a cut",
    here="they expect the largest Q, plain or soft, at the last state before it",
)
@pytest.mark.differs("ilql", there="rewards become integers", here="they stay floats")
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_decisions_are_those_of_a_walk(seed, packed):
    rows = random_rows(seed, num_rows=6, packed=packed)
    tokens, utterances = mdp.token_steps(rows), mdp.utterance_steps(rows)
    slow, slow_utterances = slow_terms.token_steps(rows), slow_terms.utterance_steps(rows)
    for row in range(6):
        assert decisions_of(tokens, row) == {place: one for (of, place), one in slow.items() if of == row}
        wanted = {place: one[1:] for (of, place), one in slow_utterances.items() if of == row}
        assert decisions_of(utterances, row) == wanted
    for (row, place), (state, *_) in slow_utterances.items():
        assert utterances.state[row, place] == state


@pytest.mark.differs(
    "ilql",
    there="returns to go, and a decision transformer's return, lack the rewards that were cut off",
    here="they include them",
)
@pytest.mark.parametrize("width", [2, 9, 16])
def test_returns_are_the_same_in_rows_that_are_cut(tmp_path, width):
    turns = random_store(tmp_path / "store").turns()
    whole, cut = (
        Renderer(turns, Letters(), TEMPLATES["marks"], discount=0.9).rows(np.arange(40), size) for size in (80, width)
    )
    lengths = np.minimum((whole.segments > 0).sum(1), width)
    assert (whole.segments > 0).sum(1).max() <= 80
    inside = np.arange(width) < lengths[:, None]
    cut_returns, returns = np.asarray(mdp.returns_to_go(cut, 0.9)), np.asarray(mdp.returns_to_go(whole, 0.9))
    np.testing.assert_allclose(cut_returns[inside], returns[:, :width][inside], atol=1e-5)
    undiscounted = [Renderer(turns, Letters(), TEMPLATES["marks"]).rows(np.arange(40), size) for size in (80, width)]
    totals = [np.asarray(mdp.episode_returns(rows))[:, 0] for rows in undiscounted]
    np.testing.assert_allclose(*totals, atol=1e-5)


@pytest.mark.differs(
    "ilql",
    there="the last decision of an episode is dropped if the world's closing text is cut",
    here="it stays, and ends the episode",
)
@pytest.mark.parametrize("width", [9, 6, 5])
def test_a_final_reward_is_learnt_from_if_only_the_text_after_it_is_cut(width):
    """Tokens: <a> x </a> y </a> b b </s> </eod>: "y" has the reward 5, and the environment has the last word."""
    turns = turns_of([Episode((Turn("x", 0.0), Turn("y", 5.0), Turn("bb")), True)])
    rows = Renderer(turns, Letters(), TEMPLATES["marks"]).rows(np.array([0]), width)
    last = width - 1
    wanted = {0: (1, 0.0, False), 1: (2, 0.0, False), 2: (3, 0.0, False), 3: (last, 5.0, True)}
    assert decisions_of(mdp.token_steps(rows)) == wanted
    assert decisions_of(mdp.utterance_steps(rows))[4] == (last, 5.0, True)
