"""Generation with a cache: what transformers generates, whatever the padding; and every limit holds."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from small_models import FEW, VOCABULARY, logits_of, make_small, some_tokens

from motif_jax.language import generation

CONTEXTS, LENGTHS = some_tokens(), np.array([11, 6, 8])
LEFT = np.arange(11) >= 11 - LENGTHS[:, None]  # padded on the left
KEYS = jax.random.split(jax.random.key(0), 3)
GREEDY, PLAIN = generation.TokenSampling(0.0, 0, 1.0), generation.TokenSampling(1.0, 0, 1.0)
ROOM = 12


def shift(arguments, carry, token, hidden):
    """Adds a multiple of the token's row in a table; `carry` is the sum of the tokens, and turns the row."""
    table, factor = arguments
    turned = jax.vmap(jnp.roll)(table[token], carry)
    return factor * turned, carry + token


@functools.cache
def make_program(name, length=ROOM, shifted=False):
    graph, more = make_small(name).graph, (shift,) if shifted else ()

    def run(params, tokens, segments, keys, sampling, limits, *arguments):
        return generation.generate(
            nnx.merge(graph, params), tokens, segments, keys, sampling, limits, length, *more, *arguments
        )

    return jax.jit(run)


def run(name, sampling=GREEDY, limits=None, tokens=CONTEXTS, valid=LEFT, keys=KEYS, **more):
    sampling = jax.tree.map(jnp.asarray, sampling)
    limits = limits or generation.no_limits(VOCABULARY, len(tokens))
    return jax.tree.map(
        np.asarray,
        make_program(name, **more)(make_small(name).params, tokens, valid.astype(int), keys, sampling, limits),
    )


@pytest.mark.parametrize("name", FEW)
def test_greedy_tokens_are_those_of_transformers(name):
    import torch

    small = make_small(name)
    generated = run(name, length=20)
    options = {"do_sample": False, "max_new_tokens": 20, "min_new_tokens": 20, "eos_token_id": None, "pad_token_id": 0}
    options["use_cache"] = not small.is_encoder_decoder  # theirs wants as many blocks in the encoder as in the decoder
    wanted = small.theirs.generate(torch.tensor(CONTEXTS), attention_mask=torch.tensor(LEFT).long(), **options)
    assert generated.tokens.tolist() == wanted[:, -20:].tolist()
    assert (generated.lengths == 20).all()


@pytest.mark.parametrize("name", FEW)
def test_a_cache_padding_and_other_rows_change_nothing(name):
    """The log-probabilities of generated tokens are those of reading the whole rows at once."""
    wanted = run(name, PLAIN)
    ones = np.ones_like(wanted.tokens)
    if make_small(name).is_encoder_decoder:
        logits = logits_of(name, CONTEXTS, LEFT, np.pad(wanted.tokens[:, :-1], ((0, 0), (1, 0))), ones)
    else:
        whole = np.concatenate([CONTEXTS, wanted.tokens], 1), np.concatenate([LEFT, ones], 1)
        logits = logits_of(name, *whole)[:, CONTEXTS.shape[1] - 1 : -1]
    odds = jnp.take_along_axis(jax.nn.log_softmax(logits), wanted.tokens[..., None], -1)[..., 0]
    np.testing.assert_allclose(wanted.log_probs, odds, atol=2e-5)
    right = np.zeros((5, 14), int), np.zeros((5, 14), bool)
    for row, length in enumerate(LENGTHS):
        right[0][row, :length], right[1][row, :length] = CONTEXTS[row, 11 - length :], True
    right[0][3:], right[1][3:] = 7, True
    keys = jnp.concatenate([KEYS, jax.random.split(jax.random.key(1), 2)])
    generated = run(name, PLAIN, tokens=right[0], valid=right[1], keys=keys)
    assert np.array_equal(generated.tokens[:3], wanted.tokens)
    np.testing.assert_allclose(generated.log_probs[:3], wanted.log_probs, atol=2e-5)


def test_rows_end_early_and_the_loop_with_them():
    limits = generation.no_limits(VOCABULARY, 3)._replace(stops=jnp.arange(VOCABULARY) < 30, pad=60)
    generated = run("gpt2", PLAIN, limits)
    assert (generated.lengths < ROOM).all()
    for row, length in zip(generated.tokens, generated.lengths, strict=True):
        assert row[length - 1] < 30
        assert (row[: length - 1] >= 30).all()
        assert (row[length:] == 60).all()
    wanted = run("gpt2", PLAIN).tokens  # the same draws, without an end
    for row, whole, length in zip(generated.tokens, wanted, generated.lengths, strict=True):
        assert np.array_equal(row[:length], whole[:length])


@pytest.mark.parametrize("name", ["gpt2", "flan"])
def test_packing_the_rows_that_continue_changes_nothing(name):
    """Two of 40 rows at a time, which are not packed, get the same tokens."""
    num, rng = generation.PACK_ROWS + 8, np.random.default_rng(0)
    tokens, valid = rng.integers(2, VOCABULARY, (num, 6)), np.ones((num, 6), int)
    keys = jax.random.split(jax.random.key(2), num)
    forced = np.where(rng.random((num, 4)) < 0.1, 40, generation.FREE)
    forced[:2] = 40  # these two go on when others have ended
    stops, allowed = jnp.arange(VOCABULARY) < 12, jnp.array(rng.random((num, VOCABULARY)) < 0.8)
    table = jax.random.normal(jax.random.key(5), (VOCABULARY, VOCABULARY))
    program, params = make_program(name, generation.PACK_LENGTH, shifted=True), make_small(name).params
    temperature = jnp.linspace(0.5, 2.0, num)

    def of_rows(rows):
        sampling = generation.TokenSampling(temperature[rows], jnp.zeros(len(rows), int), jnp.ones(len(rows)))
        limits = generation.TokenLimits(allowed[rows], stops, jnp.array(forced[rows]), 60)
        arguments = (table, jnp.float32(1)), jnp.arange(num)[rows]
        return program(params, tokens[rows], valid[rows], keys[rows], sampling, limits, *arguments)

    whole, wanted = of_rows(np.arange(num)), [of_rows(np.arange(row, row + 2)) for row in range(0, num, 2)]
    wanted = jax.tree.map(lambda *parts: np.concatenate(parts), *wanted)
    assert np.array_equal(whole.tokens, wanted.tokens)
    assert np.array_equal(whole.lengths, wanted.lengths)
    np.testing.assert_allclose(whole.log_probs, wanted.log_probs, atol=1e-4)
    assert np.partition(wanted.lengths, -num // 4)[-num // 4] + 2 < wanted.lengths.max()  # rows went on after packing


@pytest.mark.differs(
    "ilql",
    there="temperature, top-k and top-p act on the logits, and then the shift is added",
    here="they act on the sum",
)
@pytest.mark.parametrize("name", ["gpt2", "flan"])
def test_a_shift_adds_to_the_logits(name):
    """Its tokens are those of a slow loop that reads the whole rows at every step."""
    small = make_small(name)
    table = jax.random.normal(jax.random.key(5), (VOCABULARY, VOCABULARY)) * 3
    program, valid = make_program(name, shifted=True), LEFT.astype(int)
    only_best = generation.TokenSampling(2.0, 1, 1.0)  # of the sums
    for factor, sampling in ((0.0, GREEDY), (1.0, GREEDY), (1.0, only_best)):
        sampling = jax.tree.map(jnp.asarray, sampling)
        more = generation.no_limits(VOCABULARY, 3), (table, jnp.float32(factor)), jnp.zeros(3, int)
        generated = program(small.params, CONTEXTS, valid, KEYS, sampling, *more)
        tokens = slow_greedy(name, factor * np.asarray(table))
        assert generated.tokens[:, :5].tolist() == tokens.tolist()
    assert program._cache_size() == 1


def slow_greedy(name, table, steps=5):
    length, carry = CONTEXTS.shape[1], np.zeros(3, int)
    if make_small(name).is_encoder_decoder:
        length, tokens = 1, np.zeros((3, 1 + steps), int)
        valid = np.zeros((3, 1 + steps), int)
    else:
        tokens, valid = (np.pad(array, ((0, 0), (0, steps))) for array in (CONTEXTS, LEFT.astype(int)))
    valid[:, 0] |= length == 1
    for end in range(length, length + steps):
        more = (CONTEXTS, LEFT) if length == 1 else ()
        last = tokens[:, end - 1]
        added = np.array([np.roll(row, by) for row, by in zip(table[last], carry, strict=True)])
        tokens[:, end] = (logits_of(name, *more, tokens, valid)[:, end - 1] + added).argmax(-1)
        valid[:, end], carry = 1, carry + last
    return tokens[:, length:]


def slow_odds(logits, temperature, top_k, top_p):
    if temperature == 0:
        return np.eye(len(logits))[logits.argmax()]
    odds = np.exp(logits / temperature - (logits / temperature).max())
    order = sorted(range(len(odds)), key=lambda token: -odds[token])
    kept = order[: top_k or None]
    total, mass, inside = sum(odds[token] for token in kept), 0.0, []
    for token in kept:
        if mass < top_p or not inside:
            inside.append(token)
        mass += odds[token] / total
    return np.array([odds[token] if token in inside else 0 for token in range(len(odds))]) / odds[inside].sum()


@pytest.mark.parametrize("few", [generation.FEW, 5])
@pytest.mark.parametrize(
    "values", [(1.0, 0, 1.0), (0.7, 4, 1.0), (1.5, 0, 0.5), (2.0, 5, 0.7), (1.0, 0, 0.0), (0.0, 3, 0.5)]
)
def test_tokens_are_drawn_with_their_probabilities(values, few, monkeypatch):
    monkeypatch.setattr(generation, "FEW", few)
    num = 4000
    logits = jnp.array(np.random.default_rng(0).normal(size=12) * 2).astype(jnp.float32)
    keys = jax.random.split(jax.random.key(1), num)
    sampling = jax.tree.map(jnp.asarray, generation.TokenSampling(*values))
    drawn = jax.jit(lambda *args: generation.draw(*args))(jnp.tile(logits, (num, 1)), keys, sampling)
    shares, wanted = np.bincount(drawn, minlength=12) / num, slow_odds(np.asarray(logits), *values)
    assert (shares[wanted == 0] == 0).all()
    np.testing.assert_allclose(shares, wanted, atol=4 * 0.5 / num**0.5)


@pytest.mark.differs(
    "ilql", there="top-p keeps all tokens as probable as the last one", here="top-p and top-k keep the first of equals"
)
@pytest.mark.parametrize(("sampling", "kept"), [
    (generation.TokenSampling(1.0, 0, 0.5), {0, 1}),  # 1/4 + 1/4 reach 0.5
    (generation.TokenSampling(1.0, 0, 0.6), {0, 1, 2}),
    (generation.TokenSampling(1.0, 3, 1.0), {0, 1, 2}),
])  # fmt: skip
def test_of_equal_logits_the_first_are_kept(sampling, kept):
    keys = jax.random.split(jax.random.key(1), 200)
    drawn = jax.jit(generation.draw)(jnp.zeros((200, 4)), keys, jax.tree.map(jnp.asarray, sampling))
    assert {*drawn.tolist()} == kept


def make_search(name, num_beams, length):
    graph = make_small(name).graph

    def run(params, limits, penalty):
        return generation.search(
            nnx.merge(graph, params), CONTEXTS, LEFT.astype(int), num_beams, limits, length, penalty
        )

    return lambda limits, penalty=0.0: jax.tree.map(np.asarray, jax.jit(run)(make_small(name).params, limits, penalty))


@pytest.mark.parametrize("name", ["qwen3", "flan"])
def test_wide_beams_find_the_best_of_all(name):
    """Of all continuations by three of four tokens, one of which ends a text."""
    few, end = [5, 6, 7, 8], 8
    limits = generation.no_limits(VOCABULARY, 3, (end,))
    limits = limits._replace(allowed=jnp.zeros(VOCABULARY, bool).at[jnp.array(few)].set(True))
    every = {tuple(itertools.takewhile(lambda token: token != end, row)) for row in itertools.product(few, repeat=3)}
    every = [[*row, end][:3] for row in sorted(every)]
    forced = np.full((len(every), 3), 0)
    for row, tokens in enumerate(every):
        forced[row, : len(tokens)] = tokens
    find = make_search(name, 16, 3)
    for penalty in (0.0, 1.0):
        generated = find(limits, penalty)
        for row in range(3):
            many = len(every)
            scored = run(
                name, PLAIN, limits._replace(forced=jnp.array(forced)), np.tile(CONTEXTS[row], (many, 1)),
                np.tile(LEFT[row], (many, 1)), jnp.tile(KEYS[:1], many), length=3,
            )  # fmt: skip
            values = scored.log_probs.sum(1) / scored.lengths**penalty
            best = values.argmax()
            assert generated.tokens[row, : generated.lengths[row]].tolist() == every[best]
            np.testing.assert_allclose(
                generated.log_probs[row].sum() / generated.lengths[row] ** penalty, values[best], rtol=1e-4
            )


@pytest.mark.parametrize("name", ["qwen3", "flan"])
def test_many_blocks_share_a_cache_and_write_what_few_would(name):
    """Blocks of a deep stack run in a scan over one cache; few blocks are unrolled, with a cache each."""

    def written_by(scanned):
        def run(params):
            model = nnx.merge(make_small(name).graph, params)
            for stack in (getattr(model, part) for part in ("stack", "encoder", "decoder") if hasattr(model, part)):
                assert stack.unrolled
                stack.unrolled = not scanned
            return generation.search(model, CONTEXTS, LEFT.astype(int), 3, generation.no_limits(VOCABULARY, 3), ROOM)

        return jax.jit(run)(make_small(name).params)

    few, many = written_by(scanned=False), written_by(scanned=True)
    assert few.tokens.tolist() == many.tokens.tolist()
    np.testing.assert_allclose(few.log_probs, many.log_probs, atol=1e-5)
