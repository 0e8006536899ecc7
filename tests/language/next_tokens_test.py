"""Next tokens after texts that begin alike: the same as after whole texts."""

import numpy as np
import pytest

from motif_jax.language.hub_config import make_config
from motif_jax.language.loaded import Language
from motif_jax.language.model import make_language_model
from motif_jax.language.next_tokens import NextTokens
from motif_jax.tokens import WordTokeniser

pytestmark = pytest.mark.quick
WORDS = [f"w{number}" for number in range(40)]


def make(family="qwen2", blocks=2):
    tokeniser = WordTokeniser.from_texts([" ".join(WORDS)])
    more = {"n_positions": 64} if family == "gpt2" else {"max_position_embeddings": 64}
    config = make_config(family, tokeniser.size, 16, blocks, 2, **more)
    return Language(make_language_model(config, seed=3), tokeniser, batch_size=4)


def slowly(language, rows, ids):
    """By the scores of single tokens after whole texts."""
    texts = [language.tokeniser.decode(row) for row in rows]
    names = [language.tokeniser.decode([one]) for one in ids]
    assert [language.tokeniser.encode(text) for text in texts] == [list(row) for row in rows]
    return language.score(texts, names)


@pytest.mark.parametrize("family", ["gpt2", "qwen2"])
@pytest.mark.parametrize("blocks", [2, 5])
def test_a_common_beginning_that_is_read_once_changes_nothing(family, blocks):
    language, rng = make(family, blocks), np.random.default_rng(0)
    ids = language.tokeniser.encode("w1 w2 w3")
    ask = NextTokens(language, ids)
    words = language.tokeniser.encode(" ".join(WORDS))
    begin = rng.choice(words, 11).tolist()
    for count in (1, 7, 3):  # the first text alone is its own beginning
        rows = [begin + rng.choice(words, rng.integers(1, 20)).tolist() for _ in range(count)]
        np.testing.assert_allclose(ask(rows), slowly(language, rows, ids), atol=2e-5)
    others = [rng.choice(words, size).tolist() for size in (5, 1, 9)]  # nothing in common
    np.testing.assert_allclose(ask(others), slowly(language, others, ids), atol=2e-5)
