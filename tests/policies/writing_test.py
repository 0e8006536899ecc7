"""Decoding with beta (Q - V): against loops that look at whole texts, and what must hold for all of them."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import on_devices, refusal
from flax import nnx
from tiny_writer import POSITIONS, TOKENISER, make_value_model

from motif_jax.language import generation
from motif_jax.language.model import as_functions
from motif_jax.offline.recipes import recipe_of
from motif_jax.offline.values import ShiftArguments, advantages, condition
from motif_jax.policies import writing
from motif_jax.policies.decoding import KINDS, SHARED, Decoding, describe_unused
from motif_jax.policies.writing import ValueWriter, pad_contexts
from motif_jax.stages.evaluate.play import turns_of
from motif_jax.structs import Turn

CONTEXTS = [TOKENISER.encode(text, marks=True) for text in (
    "<a>", "<a>abcde</a><b><y><g><b><b></s>", "<s>ab</s>c</a>", "<a>dd</a><y><y></s>eabcd</a><g></s>",
)]  # fmt: skip
DECODING = Decoding("greedy", max_tokens=5, batch_size=4)
KEY = jax.random.key(0)


@functools.cache
def writer_of(recipe="ilql"):
    return ValueWriter(make_value_model(recipe))


def write(decoding, recipe="ilql", contexts=CONTEXTS, key=KEY, numbers=(0, 1, 2, 3)):
    return texts_of(writer_of(recipe).write(contexts, decoding, key, numbers[: len(contexts)]))


def texts_of(replies):
    return [(reply.text, reply.probability) for reply in replies]


@functools.cache
def looks(recipe):
    """Logits and Q - V of every token after the last one of a text, padded to one length so that it compiles once."""
    model = make_value_model(recipe)
    params = jax.device_put((model.policy, model.target, model.online))
    model = model._replace(policy=params[0], target=params[1], online=params[2])

    @jax.jit
    def look(tokens, last, wanted):
        row, segments = tokens[None], (jnp.arange(len(tokens)) <= last)[None].astype(jnp.int32)
        decoder = nnx.merge(model.graph, model.policy)
        added = None
        if model.recipe.conditioned:
            first = jnp.arange(len(tokens))[None] == 0
            added = condition(model.online["condition"], jnp.full((1, len(tokens)), wanted), first)
        _, hidden = decoder.begin(row, segments, 0, added)
        logits = decoder.logits(hidden)[0]
        if not model.recipe.per_token:
            return logits, jnp.zeros_like(logits)
        return logits, advantages(
            as_functions(model.graph, model.config), ShiftArguments(0.0, 0.0, model.target, model.online), row, segments
        )[0, last]

    def run(tokens, wanted=0.0):
        padded = np.zeros(POSITIONS, np.int32)
        padded[: len(tokens)] = tokens
        return [np.asarray(array, np.float64) for array in look(padded, len(tokens) - 1, wanted)]

    return run


def greedy_loop(tokens, decoding, recipe="ilql", wanted=0.0):
    model, written = make_value_model(recipe), []
    while len(written) < decoding.max_tokens and model.renderer.stop not in written:
        logits, advantage = looks(recipe)([*tokens, *written], wanted)
        shifted = decoding.include_logits * logits + np.minimum(decoding.beta * advantage, decoding.clip)
        written.append(int(np.where(model.allowed, shifted, -np.inf).argmax()))
    return TOKENISER.decode(written)


@pytest.mark.parametrize("values", [{}, {"clip": 0.0}, {"include_logits": False}], ids=str)
def test_each_token_is_the_best_of_logits_and_shift(values):
    by_beta = []
    for beta in (0.0, 1.0, 100.0):
        decoding = replace(DECODING, beta=beta, **values)
        texts = [text for text, _ in write(decoding)]
        assert texts == [greedy_loop(tokens, decoding) for tokens in CONTEXTS]
        by_beta.append(texts)
    assert len({tuple(texts) for texts in by_beta}) == (2 if values.get("include_logits") is False else 3)


@pytest.mark.differs(
    "ilql",
    there="an agent may write `</s>` in its text",
    here="it writes only tokens that it has used in the transcripts",
)
def test_special_tokens_and_tokens_that_the_agent_never_used_are_not_written():
    decoding = Decoding("sample", 4.0, temperature=50.0, max_tokens=12, batch_size=4)
    letters = "".join(text for seed in range(8) for text, _ in write(decoding, key=jax.random.key(seed)))
    assert set(letters) == set("abcde")


def test_a_reply_does_not_depend_on_other_conversations():
    decoding = Decoding("sample", 2.0, max_tokens=5, batch_size=4)
    together = write(decoding)
    for number, tokens in enumerate(CONTEXTS):
        ((text, odds),) = write(decoding, contexts=[tokens], numbers=(number,))
        assert text == together[number][0]
        assert odds == pytest.approx(together[number][1], rel=1e-4)


@pytest.mark.parametrize(("recipe", "changes"), [
    ("ilql", {"clip": 0.5}), ("ilql", {"kind": "rerank"}), ("utterance_ilql", {"kind": "rerank"}),
    ("decision_transformer", {"beta": 0.0, "wanted_return": -1.0}),
])  # fmt: skip
def test_equal_contexts_of_neighbours_are_read_once(recipe, changes, monkeypatch):
    writer, contexts = ValueWriter(make_value_model(recipe)), [CONTEXTS[1]] * 4 + [CONTEXTS[3]] * 4
    decoding = replace(Decoding("sample", 1.0, max_tokens=5, batch_size=8, candidates=3), **changes)
    apart = texts_of(writer.write(contexts, decoding, KEY, range(8)))
    monkeypatch.setattr(writing, "SHARED_FROM", 2)
    read = []
    monkeypatch.setattr(writing, "pad_contexts", lambda rows, size: read.append(size) or pad_contexts(rows, size))
    shared = texts_of(writer.write(contexts, decoding, KEY, range(8)))
    assert read == [2]
    assert [text for text, _ in shared] == [text for text, _ in apart]
    assert len({text for text, _ in shared[:4]}) > 1
    np.testing.assert_allclose([odds for _, odds in shared], [odds for _, odds in apart], rtol=1e-4)


def test_one_beam_is_greedy_and_more_find_what_is_more_probable():
    greedy = write(replace(DECODING, beta=1.0))
    one = write(replace(DECODING, kind="beam", beams=1, beta=1.0))
    assert [text for text, _ in one] == [text for text, _ in greedy]
    many = write(replace(DECODING, kind="beam", beams=6, beta=1.0))
    for (_, odds), (_, least) in zip(many, one, strict=True):
        assert odds >= least * 0.999


def test_rerank_writes_the_candidate_that_is_worth_most():
    decoding = Decoding("rerank", 1.0, candidates=6, max_tokens=5, batch_size=4)
    replies, model = write(decoding), make_value_model()
    for number, tokens in enumerate(CONTEXTS):
        key = jax.random.fold_in(KEY, number)
        samples = texts_of(writer_of().write([tokens] * 6, replace(decoding, kind="sample"), key, range(6)))
        worths = []
        for text, _ in samples:
            candidate, total = TOKENISER.encode(text), 0.0
            candidate = [*candidate, model.renderer.stop] if len(candidate) < 5 else candidate
            for place, token in enumerate(candidate):
                total += looks("ilql")([*tokens, *candidate[:place]])[1][token]
            worths.append(total)
        assert replies[number][0] == samples[int(np.argmax(worths))][0]


@pytest.mark.differs(
    "ilql",
    there="a decision transformer has a position for the return",
    here="the return is added to the embedding of the first token",
)
def test_a_decision_transformer_is_told_the_return():
    by_return = []
    for wanted in (-3.0, 3.0):
        replies = write(replace(DECODING, wanted_return=wanted), "decision_transformer")
        want = [greedy_loop(tokens, DECODING, "decision_transformer", wanted / 2.0) for tokens in CONTEXTS]
        assert [text for text, _ in replies] == want
        by_return.append(replies)
    assert by_return[0] != by_return[1]


@pytest.mark.parametrize(("recipe", "decoding", "sentence"), [
    ("bc", Decoding(beta=1.0), "has no values, so only beta 0"),
    ("utterance_ilql", Decoding(beta=2.0), "has values of whole texts"),
    ("filtered_bc", Decoding("rerank"), "no values to rank candidates"),
    ("ilql", Decoding(max_tokens=POSITIONS), f"too long for a model that reads {POSITIONS}"),
])  # fmt: skip
def test_decodings_without_their_values_are_refused(recipe, decoding, sentence):
    refusal(lambda: writer_of(recipe).check(decoding), sentence, "--config.decoding.")


OTHER = {  # values that are not the defaults, each of which is seen in what is written wherever it is used
    "clip": 0.0, "temperature": 0.3, "top_k": 1, "top_p": 0.2, "beams": 1, "candidates": 2, "rerank_values": -1.0,
    "rerank_log_prob": 9.0, "wanted_return": 30.0,
}  # fmt: skip


@pytest.mark.parametrize(("recipe", "kind"), [
    *(("ilql", kind) for kind in KINDS), ("utterance_ilql", "rerank"), ("decision_transformer", "sample"),
])  # fmt: skip
def test_every_value_changes_the_reply_or_is_listed_as_unused(recipe, kind):
    assert OTHER.keys() == {name for name, one in SHARED.items() if one.only_for}
    decoding = Decoding(kind, 1.0 if recipe == "ilql" else 0.0, beams=6, candidates=6, max_tokens=5, batch_size=4)
    before = write(decoding, recipe)
    for name, value in OTHER.items():
        changed = replace(decoding, **{name: value})
        one = Decoding(kind, decoding.beta, **{name: value})
        (*lines,) = describe_unused(recipe_of(recipe), [one])
        assert len(lines) == (write(changed, recipe) == before), name
        assert all(f"makes no use of {name} = {value}" in line for line in lines)
        assert all(f"(--config.decoding.{name})" in line for line in lines)


def test_q_keeps_within_the_bounds_of_training():
    """Both bounds below all Q: every token is worth the same, and the policy decides alone."""
    model, decoding = make_value_model(), replace(DECODING, beta=5.0)
    assert write(decoding) != write(DECODING)
    writer = ValueWriter(model._replace(bounds=(-100.0, -90.0)))
    replies = texts_of(writer.write(CONTEXTS, decoding, KEY, range(4)))
    assert [text for text, _ in replies] == [text for text, _ in write(DECODING)]
    assert np.abs(writer.probabilities(CONTEXTS[1], decoding).advantage).min() > 80


@pytest.mark.parametrize("kind", ["greedy", "sample", "beam", "rerank"])
def test_a_text_ends_where_the_context_is_full(kind):
    lefts = (1, 2, 3, 0, -20)  # tokens, where a text has up to five
    contexts = [(CONTEXTS[3] * 6)[: POSITIONS - left] for left in lefts]
    decoding = replace(DECODING, kind=kind, beta=1.0, candidates=6, beams=6)
    replies = write(decoding, contexts=contexts, numbers=range(5))
    assert replies[3:] == [("", 1.0)] * 2
    for (text, odds), tokens, left in zip(replies[:3], contexts, lefts, strict=False):
        assert len(text) <= left
        assert 0 < odds <= 1
        if kind == "greedy":
            assert text == greedy_loop(tokens, replace(decoding, max_tokens=left))


def write_drawn():
    """Texts that are drawn, for all conversations at once; three have ended after five tokens, the fourth goes on."""
    return write(Decoding("sample", 4.0, max_tokens=9, batch_size=4), key=jax.random.key(85))


@pytest.fixture
def here():
    return write_drawn()


@on_devices(2)
def test_devices_share_the_conversations(here):
    """There, the fourth text is written alone."""
    generation.PACK_ROWS, generation.PACK_LENGTH = 4, 9
    there = write_drawn()
    assert [text for text, _ in there] == [text for text, _ in here]
    np.testing.assert_allclose([odds for _, odds in there], [odds for _, odds in here], rtol=1e-4)
    assert sum(len(mesh.devices.flat) == 2 for mesh in writer_of("ilql")._placed) == 1


def test_each_text_has_its_own_tokens_where_the_conversation_began_anew():
    """7 tokens, then an answer of 22: more than 27 of 30, so the second text is written behind the answer alone."""
    turns = [Turn("a"), Turn("bcd", 0.0), Turn("e" * 21), Turn("ab", 0.0)]
    for turn in turns_of(writer_of(), DECODING, turns):
        assert "".join(one["token"] for one in turn["tokens"]) == f"{turn['said']}end"
