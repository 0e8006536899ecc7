"""Conversations as they go on have the tokens that they have once they are recorded."""

import numpy as np
import pytest
from talks import Letters, random_store, wordle_game, write

from motif_jax.structs import UserError
from motif_jax.transcripts.live import LiveRenderer
from motif_jax.transcripts.render import TEMPLATES, Renderer

pytestmark = pytest.mark.quick


def test_tokens_are_those_of_the_recorded_conversation(tmp_path):
    store, compared = random_store(tmp_path / "store"), 0
    live, renderer = LiveRenderer(Letters(), TEMPLATES["marks"]), Renderer(store, Letters(), TEMPLATES["marks"])
    for number in range(len(store)):
        turns, terminal, _ = store.episode(number)
        if any(not turn.is_action and not turn.text for turn in turns):
            continue  # worlds that say nothing say no empty text
        heard_first = bool(turns) and not turns[0].is_action
        tokens = live.begin(turns[0].text if heard_first else "")
        for turn in turns[heard_first:]:
            tokens += live.said(turn.text) if turn.is_action else live.heard(turn.text)
        recorded = renderer.tokens(number)
        assert tokens == recorded[: len(recorded) - terminal]
        compared += 1
    assert compared > 10


def test_the_agent_emits_its_letters_and_the_end_of_its_texts(tmp_path):
    renderer = Renderer(write(tmp_path / "store", [wordle_game()]), Letters(), TEMPLATES["marks"])
    assert sorted(Letters().decode([token]) for token in renderer.emitted()) == ["</a>", *"abcdeinr"]
    assert np.array_equal(renderer.emitted(), np.sort(renderer.emitted()))


def test_texts_without_one_token_at_their_end_are_refused():
    with pytest.raises(UserError, match=r"ends with 0: choose another template"):
        LiveRenderer(Letters(), TEMPLATES["none"])
