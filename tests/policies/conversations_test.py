"""Conversations that a policy keeps while it plays in a pool."""

import numpy as np
import pytest
from tiny_writer import POSITIONS, make_value_model

from motif_jax.envs.world import to_row
from motif_jax.policies.conversations import WritingPlayer
from motif_jax.policies.decoding import Decoding
from motif_jax.policies.writing import ValueWriter

pytestmark = pytest.mark.quick
HEARD = "<b><y><g><b><b>"


class Noting(ValueWriter):
    """Keeps the contexts that it is given."""

    def write(self, contexts, decoding, key, numbers):
        self.given = [list(tokens) for tokens in contexts]
        return super().write(contexts, decoding, key, numbers)


def test_a_full_context_begins_anew_from_the_world_s_last_text():
    writer, decoding = Noting(make_value_model()), Decoding("greedy", max_tokens=5, batch_size=1)
    renderer = writer.model.renderer
    player = WritingPlayer(writer, decoding, width=8, num_games=1, seed=0)
    wanted, begun = [], 0
    for turn in range(12):
        observation = {"heard": to_row(HEARD, 40)[None]}
        actions, _ = player(observation, np.array([turn == 0]), np.array([0]))
        longer = wanted + renderer.heard(HEARD)
        full = len(longer) + decoding.max_tokens > POSITIONS
        begun += turn == 0 or full
        wanted = renderer.begin(HEARD) if turn == 0 or full else longer
        assert writer.given == [wanted]
        said = bytes(actions[0].astype(np.uint8)).rstrip(b"\0").decode()
        wanted = wanted + renderer.said(said)
    assert 2 < begun < 12
