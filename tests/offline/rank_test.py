"""What values are worth: ranks and advantages by hand."""

import numpy as np
import pytest
from talks import Letters

from motif_jax.offline.rankings import Chosen, rank_shares, top_advantages
from motif_jax.structs import Episode, Turn
from motif_jax.transcripts.render import TEMPLATES, Renderer
from motif_jax.transcripts.store import turns_of

pytestmark = pytest.mark.quick


@pytest.mark.differs("ilql", there="in ranks, an equal Q counts against the expert", here="it counts half")
def test_shares_of_states_in_which_the_expert_is_ranked_higher():
    """First token: 2 > 1 and 0 < 3, so 1/2; second: a tie and 5 > 4, so 3/4."""
    better, worse = np.array([[2.0, 1.0], [0.0, 5.0]]), np.array([[1.0, 1.0], [3.0, 4.0]])
    assert rank_shares(better, worse).tolist() == [0.5, 0.75]


@pytest.mark.differs(
    "ilql",
    there="the best texts have the highest sum of Q - V, without the end mark",
    here="the highest mean, with the end mark",
)
def test_top_advantages_are_means_over_the_tokens_of_an_utterance():
    episode = Episode((Turn("ab", 1.0), Turn("x"), Turn("cde", 2.0)), True)  # <a> a b </a> x </s> c d e </a> </eod>
    rows = Renderer(turns_of([episode]), Letters(), TEMPLATES["marks"]).rows(np.array([0]), 12)
    q = np.zeros((1, 12))
    q[0, :3], q[0, 5:9] = [1, 2, 3], [4, 0, 0, 0]  # means 2 and 1
    best, other = top_advantages(Chosen(q, np.full((1, 12), 0.5)), rows)
    assert best == (0, 0, 3, 1.5)
    assert other == (0, 5, 9, 0.5)
    assert top_advantages(Chosen(q, q), rows)[0].advantage == 0
