"""What people use in notebooks: load, score, generate, save; and what models compute."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import on_devices, refusal
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from own_models import TEXTS, TOKENISER, make_own, write_own

import motif_jax
from motif_jax.devices.mesh import make_mesh, map_update, place, shard, shardings, total
from motif_jax.language.adapt import sharding_rules
from motif_jax.language.config import make_config
from motif_jax.language.loaded import Language, NextTokens
from motif_jax.language.model import make_language_model
from motif_jax.structs import UserError
from motif_jax.tokens import WordTokeniser, write_tokeniser

CONTEXTS = ["Goal of the agent: go to the red ball", "You see a grey key 2 steps left", "pick", "a wall forward"]
ACTIONS = ["turn left", "turn right", "go forward", "pick up", "drop", "toggle"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    made = [write_own(name, folder / name) for name in ("gpt2", "t5")]
    return {path.name: motif_jax.load_language(path, batch_size=2, num_devices=1) for path in made}


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_choices_are_scored_whatever_the_batch(name, models):
    scores = models[name].score(CONTEXTS, ACTIONS)
    assert scores.shape == (4, 6)
    np.testing.assert_allclose(models[name].score(CONTEXTS[1:2], ACTIONS[::-1])[0], scores[1, ::-1], rtol=1e-5)
    lists = [ACTIONS, ACTIONS[:2], ACTIONS[3:], ACTIONS[:1]]
    other = models[name].score(CONTEXTS, lists)
    np.testing.assert_allclose(other[2, :3], scores[2, 3:], rtol=1e-5)
    assert np.isneginf(other).sum(1).tolist() == [0, 4, 3, 5]
    assert models[name].score([], ACTIONS).shape == (0, 6)
    assert models[name].score(CONTEXTS, []).shape == models[name].score(CONTEXTS, [[]] * 4).shape == (4, 0)
    assert (models[name].score([*map(TOKENISER.encode, CONTEXTS)], ACTIONS) == scores).all()  # contexts as tokens


def test_texts_are_generated_and_limits_hold(models):
    model = models["gpt2"]
    greedy = model.generate(CONTEXTS, 6, temperature=0)
    assert model.generate(CONTEXTS[::-1], 6, temperature=0, seed=3) == greedy[::-1]
    drawn = model.generate(CONTEXTS, 6, seed=1)
    assert drawn == model.generate(CONTEXTS, 6, seed=1) != model.generate(CONTEXTS, 6, seed=2)
    assert drawn[:1] == model.generate(CONTEXTS[:1], 6, seed=1)
    few = TOKENISER.encode("turn left")
    assert all(set(text.split()) <= {"turn", "left"} for text in model.generate(CONTEXTS, 6, allowed=few))
    begun = model.generate(CONTEXTS, 6, begin=["go forward", "", "drop", "drop"])
    assert begun[0].startswith("go forward")
    assert begun[3].startswith("drop")
    table = np.zeros(40, np.float32)
    table[few[0]] = 100

    def favour(table, token, hidden):
        return table

    assert set(model.generate(CONTEXTS, 6, shift=favour, shift_arguments=table)) == {"turn turn turn turn turn turn"}
    assert model.generate(CONTEXTS, 6, shift=favour, shift_arguments=table * 0, seed=1) == drawn
    assert len(model.generate(CONTEXTS[:2], 4, beams=3)) == 2
    (found,) = model.generate(CONTEXTS[:1], 6, beams=3, begin=["go forward"], allowed=few)  # which lacks these words
    assert re.fullmatch("go forward( (turn|left))*", found)


@pytest.mark.parametrize(("arguments", "sentence"), [
    ((["turn left", ""], ACTIONS), "context 1, '', has no tokens"),
    ((CONTEXTS, [ACTIONS]), "there are choices for 1 contexts, but 4 contexts"),
    (([" a" * 199], ["turn left up"]), "context 0 has 199 tokens, and 2 may follow, but this .* reads at most 200"),
])  # fmt: skip
def test_invalid_contexts_are_refused(arguments, sentence, models):
    refusal(lambda: models["gpt2"].score(*arguments), match=sentence)


@pytest.mark.parametrize(("values", "sentence"), [
    ({"max_tokens": 0}, "max_tokens must be at least 1 and finite, not 0"),
    ({"temperature": -1.0}, "temperature must be at least 0 and finite, not -1.0"),  # would prefer worse texts
    ({"temperature": math.nan}, "temperature must be .* not nan"),
    ({"temperature": math.inf}, "temperature must be .* not inf"),
    ({"top_k": -1}, "top_k must be .* not -1"),
    ({"top_p": 1.5}, "top_p must be between 0 and 1, not 1.5"),
    ({"top_p": math.nan}, "top_p must be between 0 and 1, not nan"),
    ({"beams": 0}, "beams must be .* not 0"),
    ({"beams": 2, "temperature": 0.5}, "a beam search does not sample"),
    ({"beams": 2, "top_k": 3}, "a beam search does not sample"),
    ({"beams": 2, "top_p": 0.5}, "a beam search does not sample"),
    ({"beams": 2, "length_penalty": math.nan}, "length_penalty must be a finite number for a beam search, not nan"),
    ({"length_penalty": 1.0}, "length_penalty must be .* for a beam search, not 1.0 with beams=1"),
    ({"allowed": [40]}, "the allowed token 40 must be a number from 0 to below"),
    ({"allowed": [3, -1]}, "the allowed token -1 must be a number from 0 to below"),
    ({"allowed": [True, False]}, "the allowed token (True|False) must be a number"),
    ({"allowed": []}, "no token is allowed"),
    ({"begin": ["a"]}, "there are 1 texts to begin with, but 4 contexts"),
    ({"begin": [" a" * 9] * 4, "max_tokens": 8}, "has 9 tokens, more than max_tokens, 8"),
])  # fmt: skip
def test_values_that_would_generate_other_texts_are_refused(values, sentence, models):
    refusal(lambda: models["gpt2"].generate(CONTEXTS, **{"max_tokens": 3} | values), match=sentence)


def test_models_are_loaded_in_two_types(tmp_path):
    refusal(
        lambda: motif_jax.load_language(write_own("gpt2", tmp_path), dtype="float16"), match="unknown dtype 'float16'"
    )


def test_the_last_token_of_a_choice_needs_no_place_in_the_context(models):
    texts, words = [" a" * 198, " a" * 198 + " turn", " a" * 198 + " turn left"], ["turn", "left", "up"]
    singly = [models["gpt2"].score([text], [word])[0, 0] for text, word in zip(texts, words, strict=True)]
    np.testing.assert_allclose(models["gpt2"].score(texts[:1], ["turn left up"])[0, 0], sum(singly), rtol=1e-4)


def test_a_tokeniser_with_more_tokens_than_the_model_has_is_refused(tmp_path):
    write_own("gpt2", tmp_path)
    write_tokeniser(tmp_path, WordTokeniser.from_texts([*TEXTS, "one two three four five six seven eight nine ten"]))
    with pytest.raises(UserError, match="the tokeniser in .* tokens, but the language model's embedding only 40 rows"):
        motif_jax.load_language(tmp_path)


# ---- eight devices


@pytest.mark.slow
@on_devices(8)
def test_eight_devices_give_what_one_gives(tmp_path):
    for name in ("qwen3", "t5"):
        write_own(name, tmp_path / name)
        one = motif_jax.load_language(tmp_path / name, num_devices=1)
        many = motif_jax.load_language(tmp_path / name, fsdp=2, tensor=2)
        kernel = many.params["decoder" if name == "t5" else "stack"]["blocks"]["mlp"]["up"]["kernel"][...]
        assert kernel.sharding.shard_shape(kernel.shape) == (kernel.shape[0], 16, 64)
        np.testing.assert_allclose(many.score(CONTEXTS, ACTIONS), one.score(CONTEXTS, ACTIONS), rtol=1e-4)
        assert many.generate(CONTEXTS, 4, seed=1) == one.generate(CONTEXTS, 4, seed=1)


@pytest.mark.slow
@on_devices(8)
def test_updates_of_parameters_that_are_cut_are_those_of_whole_ones():
    graph, params = nnx.split(make_own("qwen3"))
    tokens = np.random.default_rng(0).integers(3, 40, (8, 7))

    def loss_of(params, tokens):
        model = nnx.merge(graph, params)
        odds = jax.nn.log_softmax(model.logits(model(tokens, jnp.ones(tokens.shape, int))))
        return -jnp.take_along_axis(odds[:, :-1], tokens[:, 1:, None], -1).sum()

    def update(params, tokens):
        loss, gradient = jax.value_and_grad(loss_of)(params, tokens)
        return jax.tree.map(lambda leaf, step: leaf - 1e-3 * step, params, total(gradient)), total(loss)

    ends = []
    for sizes in ((1, 1, 1), (2, 2, 2)):
        mesh = make_mesh(int(np.prod(sizes)), *sizes[1:])
        rules = sharding_rules(make_own("qwen3").config, sizes[2])
        program = map_update(
            update, mesh, 0, results=(shardings(params, mesh, rules), NamedSharding(mesh, PartitionSpec()))
        )
        state = place(jax.tree.map(np.asarray, params), mesh, rules)
        for _ in range(2):
            state, loss = program(state, shard(tokens, mesh))
        ends.append((jax.tree.map(np.asarray, state), float(loss)))
    assert np.isclose(ends[0][1], ends[1][1], rtol=1e-5)
    for a, b in zip(*(jax.tree.leaves(end[0]) for end in ends), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4 * max(1, np.abs(a).max()))


@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_several_texts_in_a_row_do_not_see_each_other(name):
    model, tokens = make_own(name), np.random.default_rng(0).integers(3, 40, (1, 9))
    read = nnx.jit(lambda model, *rows: model.logits(model(*rows)))
    packed = read(model, tokens, np.array([[2, 2, 2, 0, 5, 5, 5, 5, 0]]))
    for part in (slice(0, 3), slice(4, 8)):
        alone = read(model, tokens[:, part], np.ones_like(tokens[:, part]))
        np.testing.assert_allclose(packed[:, part], alone, atol=1e-5)


@pytest.mark.parametrize("name", ["qwen3", "t5"])
def test_remat_changes_no_gradient(name):
    graph, params = nnx.split(make_own(name))
    again, _ = nnx.split(make_language_model(make_own(name).config, remat=True, seed=None))

    tokens = np.random.default_rng(0).integers(3, 40, (1, 9))
    rows = (tokens, np.ones_like(tokens)) * (2 if name == "t5" else 1)  # the decoder reads the same

    def gradient(graph):
        def loss(params):
            model = nnx.merge(graph, params)
            return jax.nn.log_softmax(model.logits(model(*rows)))[..., 3].sum()

        return jax.jit(jax.grad(loss)), str(jax.make_jaxpr(jax.grad(loss))(params))

    (one, plain), (other, remat) = gradient(graph), gradient(again)
    assert "checkpoint" in remat or "remat" in remat
    assert "checkpoint" not in plain
    for a, b in zip(jax.tree.leaves(one(params)), jax.tree.leaves(other(params)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4 * max(1, np.abs(a).max()))


WORDS = [f"w{number}" for number in range(40)]


def make(family, blocks):
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


@pytest.mark.quick
@pytest.mark.parametrize(("family", "blocks"), [("gpt2", 2), ("qwen2", 5)])
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
