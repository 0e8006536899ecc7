"""DRRN: its network and its loss against slow twins, its buffer against a plain list."""

import collections
import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import export
from linear_policy import make_rollouts

from motif_jax.contrib.drrn import q_learning
from motif_jax.contrib.drrn.q_learning import StoredSteps, draw, make_q_update, make_replay
from motif_jax.contrib.drrn.sections import DrrnSection
from motif_jax.devices.mesh import make_mesh, map_update
from motif_jax.learner.settings import Settings
from motif_jax.learner.update import TrainingRewards
from motif_jax.policies.model import make_policy_model
from motif_jax.tokens import WordTokeniser

N, T, B = 3, 4, 2  # batches, steps, games
NUMBER = {"x": jax.ShapeDtypeStruct((), np.float32)}
Q = Settings(algorithm="q_learning", discount=0.9, learning_rate=1e-2, adam_eps=1e-8)


def just_the_games(rollouts):
    return TrainingRewards(*[rollouts.reward] * 3)


# ---- the buffer


def batch(number):
    """Observations and rewards that say where they come from."""
    rng = np.random.default_rng(number)
    at = 1000 * number + 10 * np.arange(T + 1)[:, None] + np.arange(B)
    truncated = rng.random((T, B)) < 0.3
    terminated = ~truncated & (rng.random((T, B)) < 0.3)
    reward = np.where(rng.random((T, B)) < 0.3, at[:T] + 1.0, -at[:T] - 1.0)
    return StoredSteps({"x": at.astype(np.float32)}, rng.integers(5, size=(T, B), dtype=np.int32),
                 reward.astype(np.float32), terminated, truncated)  # fmt: skip


def transitions(steps):
    """Of a batch, one by one: (what was seen, action, reward, terminated, truncated, what followed)."""
    seen = steps.observations["x"]
    for t, game in itertools.product(range(T), range(B)):
        terminated, truncated = bool(steps.terminated[t, game]), bool(steps.truncated[t, game])
        following = seen[t, game] if truncated else seen[t + 1, game]
        yield (float(seen[t, game]), int(steps.action[t, game]), float(steps.reward[t, game]), terminated, truncated,
               float(following))  # fmt: skip


add_batch, draw_some = jax.jit(q_learning.add), jax.jit(draw, static_argnums=2)


@pytest.mark.quick
def test_the_buffer_holds_what_a_list_of_the_newest_batches_holds():
    replay, plain = make_replay(N, T, B, NUMBER), []
    for number in range(1, 2 * N + 2):
        replay = add_batch(replay, batch(number))
        plain = [*plain, batch(number)][-N:]
        known = {one for steps in plain for one in transitions(steps)}
        assert int(q_learning.count_steps(replay)) == len(known) == len(plain) * T * B
        drawn = jax.tree.leaves(draw_some(replay, jax.random.key(number), 2400))  # in the order of `transitions`
        counts = collections.Counter(zip(*(np.asarray(column).tolist() for column in drawn), strict=True))
        assert counts.keys() == known  # every one, and no other
    assert min(counts.values()) > 50  # of 24, each is expected 100 times, give or take 10
    assert max(counts.values()) < 150


# ---- the loss


def slow_loss(q, following, drawn, discount, never):
    sum_of_losses = 0.0
    for i in range(len(q)):
        target = float(drawn.reward[i])
        if not (drawn.terminated[i] or (never and drawn.truncated[i])):
            target += discount * max(following[i])
        error = abs(q[i][drawn.action[i]] - target)
        sum_of_losses += error**2 / 2 if error < 1 else error - 0.5
    return sum_of_losses / len(q)


def linear(params, frozen, observations, first, core):
    logits = observations["x"] @ params["q"]
    return logits, logits.max(-1)


@pytest.mark.parametrize("bootstrap", ["explicit", "never"])
def test_an_update_is_a_step_of_adam_on_the_slow_loss_of_what_it_drew(bootstrap):
    rollouts = make_rollouts(core=np.zeros((1, 16, 0), np.float32))
    steps = StoredSteps(
        rollouts.observations, rollouts.action, rollouts.reward, rollouts.terminated, rollouts.truncated
    )
    params = {"q": np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)}
    empty = make_replay(2, 5, 16, {"x": jax.ShapeDtypeStruct((4,), np.float32)})
    state = q_learning.init_q_state(params, Q, empty)._replace(version=jnp.int32(7))
    settings = replace(Q, bootstrap=bootstrap), DrrnSection(minibatch_size=40)
    update = make_q_update(linear, just_the_games, *settings, seed=3)
    update = jax.jit(jax.vmap(update, in_axes=(None, None, 0), axis_name="data"))

    def learn(rollouts):
        results = update(state, (), jax.tree.map(lambda array: array[None], rollouts))
        return jax.tree.map(lambda array: np.asarray(array[0]), results)

    new, metrics = learn(rollouts)
    key = jax.random.split(jax.random.fold_in(jax.random.key(3), 7), 1)[0]
    drawn, after = jax.tree.map(np.asarray, draw_some(add_batch(empty, steps), key, 40))
    assert drawn.terminated.any()
    assert drawn.truncated.any()

    def loss_of(q):
        following = after["x"] @ params["q"]  # no gradient passes through it
        return slow_loss(drawn.observations["x"] @ q, following, drawn, 0.9, bootstrap == "never")

    assert metrics["loss"] == pytest.approx(loss_of(params["q"]), rel=1e-5)
    values = np.take_along_axis(drawn.observations["x"] @ params["q"], drawn.action[:, None], 1)
    assert metrics["value_mean"] == pytest.approx(values.mean(), rel=1e-5)
    for place in itertools.product(range(4), range(3)):  # Adam's first step is the gradient's sign
        nudge = np.zeros((4, 3))
        nudge[place] = 1e-4
        slope = (loss_of(params["q"] + nudge) - loss_of(params["q"] - nudge)) / 2e-4
        assert new.params["q"][place] == pytest.approx(params["q"][place] - 1e-2 * np.sign(slope), abs=1e-5), place
    assert (int(new.version), int(new.replay.added), metrics["replay_steps"]) == (8, 1, 80)
    broken, metrics = learn(rollouts._replace(reward=np.full_like(rollouts.reward, np.nan)))
    assert metrics["finite"] == 0
    np.testing.assert_array_equal(broken.params["q"], params["q"])
    assert int(broken.replay.added) == 0  # or it would be drawn for ever
    assert all(np.isfinite(array).all() for array in jax.tree.leaves(broken.replay))


@pytest.mark.parametrize(("position", "rate"), [((), 3e-3), (np.full((1, 16), 9.0, np.float32), 1e-3)])
def test_the_rate_is_that_of_the_batchs_position_or_else_of_the_version(position, rate):
    rollouts = make_rollouts(core=np.zeros((1, 16, 0), np.float32), schedule_position=position)
    empty = make_replay(2, 5, 16, {"x": jax.ShapeDtypeStruct((4,), np.float32)})
    settings = replace(Q, anneal_learning_rate_to=0.0, total_updates=10)
    state = q_learning.init_q_state({"q": np.zeros((4, 3), np.float32)}, settings, empty)._replace(version=jnp.int32(7))
    update = make_q_update(linear, just_the_games, settings, DrrnSection(minibatch_size=40), seed=3)
    rollouts = jax.tree.map(lambda array: array[None], rollouts)
    _, metrics = jax.vmap(update, in_axes=(None, None, 0), axis_name="data")(state, (), rollouts)
    assert metrics["learning_rate"][0] == pytest.approx(rate)


KEYS = ("red", "green")
NAMES = (*(f"take the {key} key" for key in KEYS), "open the door")
WORDS = WordTokeniser.from_texts([*NAMES, "a , you have nothing", *KEYS])
OPTIONS = {"network": "drrn", "num_actions": 3, "dtype": "float32",
           "drrn": {"tokeniser": WORDS.text, "actions": list(NAMES), "width": 16, "max_tokens": 32}}  # fmt: skip


@pytest.mark.slow
def test_acting_and_an_update_lower_for_gpus_and_tpus():
    model = make_policy_model(OPTIONS, None)
    tokens = np.zeros((6, 16, 32), np.int16)
    rollouts = make_rollouts(observations={"tokens": tokens}, core=np.zeros((1, 16, 0), np.float32))
    update = make_q_update(model.unroll, just_the_games, replace(Q, num_minibatches=2), DrrnSection(), seed=0)
    program = map_update(update, make_mesh(1), 1, num_constants=1)
    seen = {"tokens": jax.ShapeDtypeStruct((32,), np.int16)}
    state = jax.eval_shape(lambda params: q_learning.init_q_state(params, Q, make_replay(N, 5, 16, seen)), model.params)

    def act(params, tokens):
        return model.step(params, (), {"tokens": tokens}, None, np.zeros((16, 0)), model.prepare(params, ()))

    export.export(program, platforms=["cuda", "tpu"])(state, (), rollouts)
    export.export(jax.jit(act), platforms=["cuda", "tpu"])(model.params, tokens[0])


WIDTH = 6


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slow_read(reader, embedding, tokens):
    """What a gated recurrent unit remembers after the last of some tokens."""
    memory = np.zeros(WIDTH)
    for token in tokens:
        given = embedding[token] @ np.asarray(reader.input_kernel[...]) + np.asarray(reader.input_bias[...])
        recalled = memory @ np.asarray(reader.kernel[...]) + np.asarray(reader.bias[...])
        reset = sigmoid(given[:WIDTH] + recalled[:WIDTH])
        update = sigmoid(given[WIDTH : 2 * WIDTH] + recalled[WIDTH : 2 * WIDTH])
        new = np.tanh(given[2 * WIDTH :] + reset * recalled[2 * WIDTH :])
        memory = (1 - update) * new + update * memory
    return memory


def slow_values(network, prompt, names):
    embedding = np.asarray(network.embedding[...])
    state = slow_read(network.prompt_reader, embedding, prompt)
    values = []
    for name in names:
        both = np.concatenate([state, slow_read(network.name_reader, embedding, name)])
        hidden = np.maximum(both @ np.asarray(network.hidden.kernel[...]) + np.asarray(network.hidden.bias[...]), 0)
        values.append(float((hidden @ np.asarray(network.last.kernel[...]) + np.asarray(network.last.bias[...]))[0]))
    return values


@pytest.mark.quick
def test_values_are_those_of_a_slow_network_for_any_padding():
    network = q_learning.RelevanceNetwork(9, WIDTH, dtype="float32", rngs=nnx.Rngs(3))
    for bias in (network.hidden.bias, network.last.bias):
        bias[...] = bias[...] + 0.3
    prompts, names = [[3, 1, 4, 1, 5], [2], [], [8, 0, 8]], [[7, 7], [6], [0, 1, 2]]

    def rows(texts, width):
        return np.array([[*text, *[-1] * (width - len(text))] for text in texts], np.int32)

    def values(prompt_width, name_width):
        both = rows(prompts, prompt_width), rows(names, name_width)
        return nnx.jit(lambda network, prompts, names: network(prompts, network.prepare(names)))(network, *both)

    wanted = [slow_values(network, prompt, names) for prompt in prompts]
    np.testing.assert_allclose(values(5, 3), wanted, atol=1e-5)
    np.testing.assert_allclose(values(9, 4), wanted, atol=1e-5)
