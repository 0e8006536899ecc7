"""Decisions, rewards and successors of tokens: the specification's worked examples, and an obvious walk."""

import numpy as np
import pytest
import slow_mdp
from talks import Letters, random_store, wordle_game
from tiny_decoder import random_rows

from motif_jax.offline import mdp
from motif_jax.structs import Episode, Turn
from motif_jax.transcripts.render import TEMPLATES, Renderer
from motif_jax.transcripts.store import turns_of

pytestmark = pytest.mark.quick


def rows_of(episode, width=40):
    return Renderer(turns_of([episode]), Letters(), TEMPLATES["marks"]).rows(np.array([0]), width)


def told(steps, row=0):
    """{position: (next state, reward, terminal)} of a row's decisions."""
    places = np.flatnonzero(steps.mask[row]).tolist()
    return {
        place: (int(steps.next_state[row, place]), float(steps.reward[row, place]), bool(steps.terminal[row, place]))
        for place in places
    }


def test_two_guesses_of_wordle():
    """26 tokens; A = 0..5, 12..17; S = A + [25]; rewards 0 except -1 at 5; terminal at the end."""
    found = told(mdp.token_steps(rows_of(wordle_game())))
    assert list(found) == [*range(6), *range(12, 18)]
    assert [following for following, _, _ in found.values()] == [1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17, 25]
    assert {place: reward for place, (_, reward, _) in found.items() if reward} == {5: -1.0}
    assert [place for place, (_, _, terminal) in found.items() if terminal] == [17]


def test_two_guesses_as_utterances():
    """Q is read at </a>, 6 and 18; V at 0 and 12."""
    steps = mdp.utterance_steps(rows_of(wordle_game()))
    assert told(steps) == {6: (12, -1.0, False), 18: (25, 0.0, True)}
    assert steps.state[0, [6, 18]].tolist() == [0, 12]
    assert steps.next_step[0, 6] == 18


def test_actions_that_follow_each_other():
    """<a> a </a> b </a>: the second starts where the first ends."""
    rows = rows_of(Episode((Turn("a", 1.0), Turn("b", 2.0)), False))
    assert told(mdp.token_steps(rows)) == {
        0: (1, 0.0, False), 1: (2, 1.0, False), 2: (3, 0.0, False), 3: (4, 2.0, False),
    }  # fmt: skip
    steps = mdp.utterance_steps(rows)
    assert told(steps) == {2: (2, 1.0, False), 4: (4, 2.0, False)}
    assert steps.state[0, [2, 4]].tolist() == [0, 2]


def test_an_empty_episode_has_no_decision():
    rows = rows_of(Episode((), True))
    assert told(mdp.token_steps(rows)) == told(mdp.utterance_steps(rows)) == {}


@pytest.mark.differs(
    "ilql",
    there="CQL and psi-learning expect 0 after the last decision before a cut",
    here="they expect the largest Q, plain or soft, at the last state before the cut",
    where="motif_jax/offline/mdp.py",
)
@pytest.mark.parametrize(("width", "decisions", "last"), [
    (3, 2, (2, 0.0, False)),  # cut in the guess: its next choice is made at the last token
    (7, 5, (5, 0.0, False)),  # cut after </a>: what the last choice leads to was cut off
    (10, 5, (5, 0.0, False)),  # cut in the colours
    (13, 6, (12, -1.0, False)),  # cut before the next guess
    (14, 7, (13, 0.0, False)),
])  # fmt: skip
def test_what_is_cut_off_is_bootstrapped_from_the_last_state_that_is_left(width, decisions, last):
    found = told(mdp.token_steps(rows_of(wordle_game(), width)))
    assert len(found) == decisions
    assert list(found.values())[-1] == last


@pytest.mark.differs(
    "ilql", there="rewards become integers", here="rewards stay floats", where="motif_jax/offline/mdp.py"
)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_decisions_are_those_of_a_walk(seed, packed):
    rows = random_rows(seed, num_rows=6, packed=packed)
    tokens, utterances = mdp.token_steps(rows), mdp.utterance_steps(rows)
    slow, slow_utterances = slow_mdp.token_steps(rows), slow_mdp.utterance_steps(rows)
    for row in range(6):
        assert told(tokens, row) == {place: one for (of, place), one in slow.items() if of == row}
        wanted = {place: one[1:] for (of, place), one in slow_utterances.items() if of == row}
        assert told(utterances, row) == wanted
    for (row, place), (state, *_) in slow_utterances.items():
        assert utterances.state[row, place] == state


@pytest.mark.parametrize("seed", range(5))
def test_returns_to_go_are_those_of_a_walk(seed):
    rows = random_rows(seed, packed=True)
    found = mdp.returns_to_go(rows, 0.9)
    slow = slow_mdp.returns_to_go(rows, 0.9)
    assert len(slow) == rows.is_action.sum()
    for (row, place), value in slow.items():
        np.testing.assert_allclose(found[row, place], value, atol=1e-5)


@pytest.mark.differs(
    "ilql",
    there="returns to go, and a decision transformer's return, lack the rewards that were cut off",
    here="they include them",
    where="motif_jax/transcripts/render.py",
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


def test_the_return_of_an_episode_is_known_at_each_of_its_tokens():
    rows = random_rows(3, packed=True)
    found = mdp.episode_returns(rows)
    for row in range(len(rows.tokens)):
        for first, last in slow_mdp.spans(rows, row):
            wanted = rows.reward[row, first : last + 1].sum()
            np.testing.assert_allclose(found[row, first : last + 1], wanted, atol=1e-5)
