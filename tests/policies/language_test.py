import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import on_devices
from flax import nnx
from jax import export

from motif_jax.devices.mesh import make_mesh, map_update, place
from motif_jax.language.config import from_record, make_config, to_record
from motif_jax.language.model import make_language_model
from motif_jax.language.scoring import Scores, make_tree, score
from motif_jax.learner.losses import calls_of
from motif_jax.learner.settings import Settings
from motif_jax.learner.update import Rollouts, TrainingRewards, init_state, make_policy_update
from motif_jax.policies.language_policy import PADDING, TanhHead, action_logits, encode_names, prompt_encoder
from motif_jax.policies.model import PolicyPlayer, make_policy_model
from motif_jax.structs import UserError
from motif_jax.tokens import WordTokeniser

ACTIONS = ("turn left", "turn right", "go forward", "drop")
PROMPTS = ("go to the red ball, you see a red ball 2 steps left", "go to the box", "you see a wall")
WORDS = WordTokeniser.from_texts([*ACTIONS, *PROMPTS, "rotate shift release"])
NOTHING = np.zeros((len(PROMPTS), 0), np.float32)


def options(family: str = "llama", actions=ACTIONS, **own):
    more = {"n_positions": 64} if family == "gpt2" else {}
    config = make_config(family, WORDS.size, 16, 1, 2, **more)
    values = {
        "config": to_record(config), "tokeniser": WORDS.text, "actions": list(actions), "head": "score",
        "formula": "sum", "hidden": 8, "lora_rank": 0, "lora_alpha": 4.0, "lora_names": "q,v", "max_tokens": 32,
        "chunk": 0, "remat": False,
    }  # fmt: skip
    return {"network": "language", "num_actions": len(actions), "dtype": "float32", "language": values | own}


def as_prompts(texts=PROMPTS, width: int = 80) -> dict[str, np.ndarray]:
    """Observations as a world gives them. [B, width]"""
    return {"prompt": np.stack([np.frombuffer(text.encode().ljust(width, b"\0"), np.uint8) for text in texts])}


@functools.cache
def plain(family="llama"):
    model = make_policy_model(options(family), 3)
    return model, act(model)


def act(model, prompts=PROMPTS):
    first = np.ones(len(prompts), bool)
    return jax.jit(model.step)(model.params, model.frozen, model.encode(as_prompts(prompts)), first, NOTHING, ())


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_logits_are_the_scores_of_the_names_behind_the_prompt(family):
    _, (logits, values, core) = plain(family)
    assert logits.shape == (3, 4)
    assert values.tolist() == [0, 0, 0]  # before training
    assert core.shape == (3, 0)
    config = from_record(options(family)["language"]["config"])
    language = make_language_model(config, seed=3)
    tree = make_tree([[WORDS.encode(name) for name in ACTIONS]])
    tokens = np.array([WORDS.encode(PROMPTS[1])], np.int32)  # without padding, and alone
    scores = nnx.jit(lambda language: score(language, tokens, np.ones_like(tokens), tree))(language)
    np.testing.assert_allclose(logits[1], scores.log_probs[0], atol=1e-5)


def test_the_learner_sees_the_logits_with_which_was_acted():
    """Whatever the lengths of the prompts beside it, in chunks or at once; one is empty."""
    model = plain()[0]
    logits, _, _ = act(model, (*PROMPTS[:2], ""))
    longer = [*PROMPTS[:2], "", " ".join(PROMPTS)]
    rows = np.stack([as_prompts(longer)["prompt"] for _ in range(2)])  # [T, B, bytes]
    chunked = make_policy_model(options(chunk=3), 3)
    for other in (model, chunked):
        first, core = np.ones((2, 4), bool), np.zeros((4, 0), np.float32)
        again, values = jax.jit(other.unroll)(other.params, other.frozen, other.encode({"prompt": rows}), first, core)
        assert values.shape == (2, 4)
        np.testing.assert_allclose(again[:, :3], np.stack([logits, logits]), atol=1e-5)


@pytest.mark.differs(
    "glam",
    there="the score of a name sums its raw logits; a pad counts 1, and names are padded to the longest of "
    "their forward pass (three names)",
    here="the score sums log-probabilities, without pads",
    reference="raw logits, with pads up to the longest of all names",
)
def test_published_formulas_are_there():
    """Made-up logits: names of 2 and 1 tokens."""
    tree = make_tree([[[4, 5], [6]]])
    logits, totals = np.array([[[3.0, 1.0], [2.0, 0.0]]]), np.array([[[3.5, 2.0], [3.5, 0.0]]])
    log_probs = np.where(tree.valid, logits - totals, 0)  # -0.5 - 1 = -1.5; -1.5
    scores = Scores(log_probs.sum(-1), np.where(tree.valid, logits, 0), np.zeros((1, 4)))
    wanted = {
        "sum": [-1.5, -1.5],
        "mean": [-0.75, -1.5],
        "raw_logits": [3 + 1, 2 + 1],  # the pad of the shorter name counts 1
        "product": [1, 1],  # exp(-1.5) of both, divided by the highest
    }
    for formula, values in wanted.items():
        np.testing.assert_allclose(action_logits(scores, tree, formula)[0], values, rtol=1e-6, err_msg=formula)
    hopeless = scores._replace(log_probs=np.array([[-1e4, -2e4]]))
    assert action_logits(hopeless, tree, "product").tolist() == [[0, 0]]  # uniform


@pytest.mark.differs(
    "glam",
    there="heads have sigmoids, and begin with PyTorch's default initialisation",
    here="heads have tanh, and their last layer begins at zero: values are 0, and the head `action` is uniform",
    reference="as published",
)
def test_heads_are_as_published_where_that_is_asked_for():
    head = TanhHead(16, 9, 4, published=True, rngs=nnx.Rngs(0))
    x = seen = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    for layer in (*head.layers, head.last):
        kernel, bias = np.asarray(layer.kernel[...]), np.asarray(layer.bias[...])
        most = len(kernel) ** -0.5  # as of torch.nn.Linear
        assert 0.9 * most < np.abs(kernel).max() <= most
        assert 0 < np.abs(bias).max() <= most
        x = x @ kernel + bias if layer is head.last else 1 / (1 + np.exp(-(x @ kernel + bias)))
    np.testing.assert_allclose(head(seen), x, atol=1e-6)
    published, ours = (act(make_policy_model(options(head="action", reference_heads=own), 0)) for own in (True, False))
    assert np.abs(published[0]).min() > 0
    assert not np.asarray(ours[0]).any()


def test_with_additions_of_low_rank_these_and_the_heads_are_trained():
    whole, (logits, _, _) = plain()
    low = make_policy_model(options(lora_rank=2), 3)
    assert not jax.tree.leaves(whole.frozen)
    # q and v of one block: [16, 2] and [2, 16] each; the critic: 16 -> 8 -> 8 -> 1
    assert sum(leaf.size for leaf in jax.tree.leaves(low.params)) == 2 * 2 * 16 * 2 + (16 * 8 + 8 + 8 * 8 + 8 + 8 + 1)
    np.testing.assert_allclose(act(low)[0], logits, atol=1e-6)  # the additions are zero at the start
    with pytest.raises(UserError, match="no matrix of this language model is called 'query'; it has "):
        make_policy_model(options(lora_rank=2, lora_names="query"), 3)


def test_actions_can_be_named_otherwise_after_training():
    names = ("rotate left", "rotate right", "go forward", "release", "shift left")
    renamed = make_policy_model(options(actions=names), 3)
    assert renamed.num_actions == 5
    logits, renamed_logits = plain()[1][0], act(renamed)[0]
    np.testing.assert_allclose(renamed_logits[:, 2], logits[:, 2], atol=1e-5)
    assert abs(renamed_logits[:, 0] - logits[:, 0]).max() > 1e-3


LONG = "go to the red ball, you see a red ball 2 steps left, you see a box, you see"
SETTINGS = Settings(algorithm="ppo", num_epochs=2, num_minibatches=2, learning_rate=1e-2)


def games_of(steps, games, begin=LONG):
    """Prompts of many lengths that begin alike. [T, B, bytes]"""
    rng, words = np.random.default_rng(0), " ".join(PROMPTS).replace(",", "").split()
    texts = [f"{begin} {' '.join(rng.choice(words, rng.integers(1, 20)))}" for _ in range(steps * games)]
    return as_prompts(texts, 200)["prompt"].reshape(steps, games, -1)


@pytest.mark.parametrize(
    ("family", "begin", "own"),
    [("llama", LONG, {}), ("gpt2", "you", {"max_tokens": 50}), ("qwen3", LONG, {"remat": True}),
     ("llama", "you", {"head": "action"}), ("llama", LONG, {"formula": "raw_logits", "chunk": 5})],
)  # fmt: skip
def test_prompts_that_share_rows_are_read_like_prompts_with_a_row_each(family, begin, own):
    """Logits, values and gradients, in acting and in learning; with and without a beginning that is read once."""
    model = make_policy_model(options(family, **{"max_tokens": 64, "reference_heads": True} | own), 3)
    rows = games_of(3, 8, begin)
    plain = model.encode({"prompt": rows})
    packed = model.pack(plain, calls_of(2, 8, 1, SETTINGS, own.get("chunk", 0)))
    assert bool(packed["places"].room) == (begin == LONG and "chunk" not in own)
    for steps, which in ((slice(0, 2), slice(1, None, 2)), (slice(2, 3), slice(None))):  # a minibatch; what follows it

        def taken(seen, steps=steps, which=which):
            cut = jax.tree.map(lambda array: np.moveaxis(array[steps], 0, 1), seen)
            return jax.tree.map(lambda array: array.reshape(1, -1, *array.shape[2:])[:, which], cut)

        shared, wanted = (probe(model, taken(seen)) for seen in (packed, plain))
        jax.tree.map(functools.partial(np.testing.assert_allclose, atol=2e-5), shared, wanted)
    step = functools.partial(jax.jit(model.step), model.params, model.frozen)
    others = np.ones(8, bool), np.zeros((8, 0)), ()
    acted, alone = step(model.encode({"prompt": rows[0]}), *others), step({"tokens": plain["tokens"][0]}, *others)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=2e-5), acted, alone)


def probe(model, seen):
    first = np.ones(seen["tokens"].shape[:2], bool)

    def loss(params):
        logits, values = model.unroll(params, model.frozen, seen, first, NOTHING)
        return (jnp.sin(logits).sum() + (values**2).sum()) / first.size, (logits, values)

    return jax.jit(jax.grad(loss, has_aux=True))(model.params)


def test_rows_that_pad_a_call_begin_like_the_others():
    """9 prompts, padded to 16: the common beginning of all rows is read once."""
    model, seen = plain()[0], []

    def encode(observations):
        seen.append(model.encode(observations))
        return seen[-1]

    player = PolicyPlayer(model._replace(encode=encode), 9, 1, seed=0)
    player(as_prompts([f"{LONG} wall"] * 9, 200), np.ones(9, bool), np.arange(9))
    assert len(seen[0]["tokens"]) == 16
    assert seen[0]["places"].room


def rollouts_of(steps, games):
    rng, size = np.random.default_rng(1), (steps, games)
    return Rollouts(
        observations={}, first=np.zeros((steps + 1, games), bool), core=np.zeros((1, games, 0), np.float32),
        action=rng.integers(4, size=size).astype(np.int32), logits=np.zeros((*size, 4), np.float32),
        value=rng.normal(size=size).astype(np.float32), version=np.zeros(size, np.int32),
        reward=rng.normal(size=size).astype(np.float32), terminated=rng.random(size) < 0.2,
        truncated=np.zeros(size, bool), reward_inputs={},
    )  # fmt: skip


@on_devices(2)
def test_two_devices_update_on_packed_prompts_as_on_padded_ones():
    model = make_policy_model(options(max_tokens=64), 3)
    plain = model.encode({"prompt": games_of(4, 8)})
    packed = model.pack(plain, calls_of(3, 8, 2, SETTINGS))
    rollouts = rollouts_of(3, 8)
    update = make_policy_update(model.unroll, lambda rollouts: TrainingRewards(*[rollouts.reward] * 3), SETTINGS)
    mesh = make_mesh(2)
    program = map_update(update, mesh, 1, num_constants=1)
    updated, wanted = (
        program(place(init_state(params, SETTINGS), mesh), model.frozen, rollouts._replace(observations=seen))
        for seen, params in ((packed, jax.tree.map(jnp.copy, model.params)), (plain, model.params))
    )
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-4), updated, wanted)


@pytest.mark.quick
def test_prompts_become_rows_of_tokens_that_are_padded_to_few_lengths():
    prompts = prompt_encoder(WORDS, 40)
    tokens = prompts(as_prompts())
    assert tokens.shape == (3, 32)
    assert tokens.dtype == np.int32
    row = WORDS.encode(PROMPTS[1])
    assert tokens[1].tolist() == [*row, *[PADDING] * (32 - len(row))]
    assert prompts({"prompt": np.zeros((2, 5, 80), np.uint8)}).shape == (2, 5, 32)
    long = as_prompts([" ".join(["wall"] * 33)], 400)
    assert prompts(long).shape == (1, 64)
    with pytest.raises(UserError, match=r"has 41 tokens, but at most 40 .* \(--config.policy.language.max_tokens,"):
        prompts(as_prompts([" ".join(["wall"] * 41)], 400))


@pytest.mark.quick
def test_names_that_cannot_be_told_apart_are_refused():
    assert encode_names(WORDS, ("turn left", "drop")) == [WORDS.encode("turn left"), WORDS.encode("drop")]
    for name in ("leave", " "):  # "take" and "leave" are unknown words
        with pytest.raises(UserError, match=rf"the action '{name}' has no tokens of its own .*\(--config.env, "):
            encode_names(WORDS, ("take", name))
    with pytest.raises(UserError, match=r"may have 65 tokens, but this language model reads at most 64"):
        make_policy_model(options("gpt2", max_tokens=64), None)
    make_policy_model(options("gpt2", ("take", "leave"), max_tokens=64, head="action"), None)  # whose names say nothing


@pytest.mark.parametrize(("family", "algorithm"), [("llama", "ppo"), ("t5", "appo")])
def test_acting_and_an_update_lower_for_gpus_and_tpus(family, algorithm):
    model = make_policy_model(options(family, chunk=4, lora_rank=2, remat=True), None)
    settings = Settings(algorithm=algorithm, num_epochs=2, num_minibatches=4)
    seen = {"tokens": np.zeros((3, 4, 32), np.int32)}
    moment = {"tokens": seen["tokens"][0]}
    if model.pack:
        moment = model.pack(moment, np.zeros(4, int))
    if model.pack and algorithm == "ppo":
        seen = model.pack(seen, calls_of(2, 4, 1, settings, model.chunk))
    rollouts = rollouts_of(2, 4)._replace(observations=seen)
    update = make_policy_update(model.unroll, lambda rollouts: TrainingRewards(*[rollouts.reward] * 3), settings)
    program = map_update(update, make_mesh(1), 1, num_constants=1)
    state = jax.eval_shape(lambda params: init_state(params, settings), model.params)
    step = jax.jit(lambda params, frozen, seen: model.step(params, frozen, seen, None, np.zeros((4, 0)), ()))
    for platform in ("cuda", "tpu"):
        export.export(program, platforms=[platform])(state, model.frozen, rollouts)
        export.export(step, platforms=[platform])(model.params, model.frozen, moment)
