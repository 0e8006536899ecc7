"""What values are worth: ranks and advantages by hand, and a game in which only ILQL ranks the first word rightly."""

import jax
import numpy as np
import pytest
from talks import Letters
from tiny_decoder import hidden_states, logits, new_params

from motif_jax.devices.mesh import make_mesh, map_update, replicate
from motif_jax.offline.batch import TranscriptBatch
from motif_jax.offline.offline_settings import OfflineSettings
from motif_jax.offline.rankings import Chosen, chosen_values, last_values, rank_shares, top_advantages
from motif_jax.offline.recipes import recipe_of
from motif_jax.offline.update import init_state, make_offline_update
from motif_jax.offline.values import ModelFunctions
from motif_jax.structs import Episode, Turn
from motif_jax.transcripts.render import TEMPLATES, Renderer
from motif_jax.transcripts.store import turns_of

pytestmark = pytest.mark.usefixtures("optimised")


@pytest.mark.differs("ilql", there="in ranks, an equal Q counts against the expert", here="it counts half")
@pytest.mark.quick
def test_shares_of_states_in_which_the_expert_is_ranked_higher():
    """First token: 2 > 1 and 0 < 3, so 1/2; second: a tie and 5 > 4, so 3/4."""
    better, worse = np.array([[2.0, 1.0], [0.0, 5.0]]), np.array([[1.0, 1.0], [3.0, 4.0]])
    assert rank_shares(better, worse).tolist() == [0.5, 0.75]


def two_words():
    episode = Episode((Turn("ab", 1.0), Turn("x"), Turn("cde", 2.0)), True)  # <a> a b </a> x </s> c d e </a> </eod>
    return Renderer(turns_of([episode]), Letters(), TEMPLATES["marks"]).rows(np.array([0]), 12)


@pytest.mark.quick
def test_values_of_the_last_tokens_of_an_utterance():
    """The second is chosen at 5, 6, 7, 8; the first at 0, 1, 2."""
    rows, values = two_words(), np.arange(12.0)[None]
    assert last_values(values, rows, 1, 4).tolist() == [[5, 6, 7, 8]]
    assert last_values(values, rows, 0, 2).tolist() == [[1, 2]]


@pytest.mark.differs(
    "ilql",
    there="the best texts have the highest sum of Q - V, without the end mark",
    here="the highest mean, with the end mark",
)
@pytest.mark.quick
def test_top_advantages_are_means_over_the_tokens_of_an_utterance():
    rows = two_words()
    q = np.zeros((1, 12))
    q[0, :3], q[0, 5:9] = [1, 2, 3], [4, 0, 0, 0]  # means 2 and 1
    best, other = top_advantages(Chosen(q, np.full((1, 12), 0.5)), rows)
    assert best == (0, 0, 3, 1.5)
    assert other == (0, 5, 9, 0.5)
    assert top_advantages(Chosen(q, q), rows)[0].advantage == 0


def risky_games():
    """After "a" a good move wins 1, but seven of eight moves are bad and lose 1; after "b" nothing is won or lost."""
    for first in "ab":
        for number in range(8):
            reward = 0.0 if first == "b" else 1.0 if number == 0 else -1.0
            move = Turn("g" if number == 0 else "h", reward)
            yield Episode((Turn(first, 0.0), Turn("x"), move), True)


@pytest.mark.slow
def test_only_high_expectiles_know_that_a_bad_past_may_have_a_good_future():
    """On average "a" is worth -3/4. With t = 0.95, V after it solves t/8 (1 - v) = (1 - t) 7/8 (1 + v): v = 0.46."""
    tokeniser = Letters()
    language = ModelFunctions(hidden_states, logits, 16, tokeniser.size)
    renderer = Renderer(turns_of(risky_games()), tokeniser, TEMPLATES["marks"])
    rows = renderer.rows(np.arange(16), 8)
    mesh, gaps = make_mesh(1), {}
    for name in ("ilql", "single_step"):
        settings = OfflineSettings(
            learning_rate=1e-2, warmup_steps=0, discount=1.0, expectile=0.95, conservative_weight=0.0, polyak=0.1
        )
        recipe = recipe_of(name)
        params = new_params(1, 16, tokeniser.size)
        state = init_state(jax.random.key(0), language, recipe, settings, params, params)
        update = map_update(make_offline_update(language, recipe, settings), mesh, batch_axis=0, num_constants=1)
        state = replicate(state, mesh)
        for _ in range(200):
            state, _ = update(state, {}, TranscriptBatch(rows))
        learnt = state.learnt
        q = np.asarray(chosen_values(language, learnt, learnt, rows).q)
        gaps[name] = float(q[0, 0] - q[8, 0])
    assert gaps["ilql"] > 0.15
    assert gaps["single_step"] < -0.3
