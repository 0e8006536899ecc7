"""Conversations as they go on have the tokens that they have once they are recorded."""

import numpy as np
import pytest
from talks import Letters, random_episode

from motif_jax.structs import Episode, Turn
from motif_jax.tokens import LetterTokeniser
from motif_jax.transcripts.render import TEMPLATES, LiveRenderer, Renderer
from motif_jax.transcripts.store import turns_of

pytestmark = pytest.mark.quick


def live_tokens(live, turns):
    first = next((at for at, turn in enumerate(turns) if turn.is_action or turn.text), 0)
    heard_first = first < len(turns) and not turns[first].is_action
    tokens = live.begin(turns[first].text if heard_first else "")
    for turn in turns[first + heard_first :]:
        tokens += live.said(turn.text) if turn.is_action else live.heard(turn.text)
    return tokens


@pytest.mark.differs(
    "ilql", there="a text is decoded and encoded again", here="texts have the same tokens as in transcripts"
)
@pytest.mark.parametrize("name", ["marks", "lines"])
def test_tokens_are_those_of_the_recorded_conversation(name):
    """Empty texts of the environment among them, at the beginning and later: then it says nothing, as worlds do."""
    turns = [Turn(""), Turn("ab", 1.0), Turn(""), Turn("c", 0.0), Turn("d"), Turn("", 0.0)]
    episodes = [random_episode(np.random.default_rng(seed)) for seed in range(40)]
    episodes += [Episode(tuple(turns[first:]), True) for first in range(len(turns) + 1)]
    live, renderer = LiveRenderer(Letters(), TEMPLATES[name]), Renderer(turns_of(episodes), Letters(), TEMPLATES[name])
    for number, (turns, terminal, _) in enumerate(episodes):
        recorded = renderer.tokens(number)
        assert live_tokens(live, turns) == recorded[: len(recorded) - (terminal and name == "marks")]
        assert recorded  # so that there is a token to decode from


@pytest.mark.parametrize("name", ["marks", "lines"])
def test_a_text_with_the_name_of_a_mark_ends_nothing(name):
    texts = ["</a>", "a</eod>b", "<s><a></s>"]
    turns = [turn for text in texts for turn in (Turn(text), Turn(f"x{text}", 1.0))]
    whole = turns_of([Episode(tuple(turns), True)])
    tokeniser = LetterTokeniser.from_texts([*whole.texts, "\n"])
    live, renderer = LiveRenderer(tokeniser, TEMPLATES[name]), Renderer(whole, tokeniser, TEMPLATES[name])
    recorded, rows = renderer.tokens(0), renderer.rows(np.array([0]), 200)
    assert live_tokens(live, turns) == recorded[: len(recorded) - (name == "marks")]
    assert recorded.count(live.stop) == (3 if name == "marks" else 6)
    assert rows.closes.sum() == 3
    assert tokeniser.decode(recorded) == "".join(turn.text + "\n" * (name == "lines") for turn in turns)
    assert not {*renderer.emitted().tolist()} & live.marks()
