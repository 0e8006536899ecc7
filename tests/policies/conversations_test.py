import itertools

import jax
import numpy as np
import pytest
from tiny_writer import POSITIONS, make_value_model

from motif_jax.envs.world import SeedStream, to_row
from motif_jax.envs.worlds import make_world
from motif_jax.policies.decoding import Decoding
from motif_jax.policies.writing import ValueWriter, WritingPlayer, play_games, play_tokens

pytestmark = pytest.mark.quick
HEARD = "<b><y><g><b><b>"


class Noting(ValueWriter):
    given: list[list[int]]

    def write(self, contexts, decoding, key, numbers):
        self.given = [list(tokens) for tokens in contexts]
        return super().write(contexts, decoding, key, numbers)


def contexts_of(heard, max_tokens):
    """The contexts of a game in which the world says these texts, and those by the rule, one after another."""
    writer, decoding = Noting(make_value_model()), Decoding("greedy", max_tokens=max_tokens, batch_size=1)
    renderer, player = writer.model.renderer, WritingPlayer(writer, decoding, width=8, num_games=1, seed=0)
    given, wanted, last, written = [], [], "", []
    for turn, text in enumerate(heard):
        last = text or last
        tokens = renderer.begin(text) if turn == 0 else written + renderer.heard(text)
        if len(tokens) > POSITIONS - min(max_tokens, POSITIONS // 8):
            tokens = renderer.begin(last)
        actions, _ = player({"heard": to_row(text, 40)[None]}, np.array([turn == 0]), np.array([0]))
        written = tokens + renderer.said(bytes(actions[0]).rstrip(b"\0").decode())
        given.append(writer.given[0])
        wanted.append(tokens)
    return given, wanted


@pytest.mark.parametrize("max_tokens", [2, 5, POSITIONS - 1])
@pytest.mark.parametrize("heard", [[HEARD] * 12, ["", HEARD] + [""] * 12, [""] * 12])
def test_a_long_conversation_begins_anew_from_the_world_s_last_text(heard, max_tokens):
    given, wanted = contexts_of(heard, max_tokens)
    assert given == wanted
    sizes = [len(tokens) for tokens in given]
    assert max(sizes) > POSITIONS // 2  # it is not begun anew before
    assert any(later < earlier for earlier, later in itertools.pairwise(sizes))


def test_games_begin_anew_unless_their_tokens_are_learnt_from():
    model, world = make_value_model(), make_world({"world": "wordle", "options": "{}"})
    writer = Noting(model._replace(config=model.config._replace(max_positions=16)))
    decoding = Decoding("greedy", max_tokens=6, batch_size=2)
    play_games(world, writer, decoding, range(2), seed=0, stream=SeedStream.EVALUATE)
    assert max(map(len, writer.given)) <= 16 - 2
    games = play_tokens(world, writer, decoding, range(2), jax.random.key(0), 0, SeedStream.EVALUATE)
    assert max(map(len, writer.given)) > 16
    for game in games:
        assert len(game.tokens) == len(game.text) == len(game.log_probs)
