"""DRRN (He et al. 2016, arXiv 1511.04636), whose logits are Q of a prompt and of an action's name.

Prompts and names share one embedding of words. One gated recurrent unit reads the prompt, another the name; a hidden
layer maps their final states to one number, Q(prompt, name). The value of a state is max Q. A checkpoint stores, under
`drrn` in the spec of its network: the content of tokenizer.json (`tokeniser`), the names of the actions (`actions`),
and those values of the section `drrn` that make it.

It learns by Q-learning (Watkins 1989) from a replay buffer (Lin 1992).

target = r + discount max_a' Q(s', a'), or r at the end of the episode
loss = mean of huber(Q(s, a) - target), without gradient through the target

Q are the network's logits, so that sampling actions from their softmax explores. Targets are computed with the current
parameters, without a target network. As in losses.py, the last state before a time limit replaces the unseen state
after it; with bootstrap = "never", a time limit is an end.

The buffer is a ring of whole batches of rollouts on the device; the newest batch replaces the oldest. The observation
after a step is the rollout's next one, so only observations at the borders of rollouts are stored twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.typing import DTypeLike

from motif_jax.contrib.drrn.sections import DRRN, DrrnSection
from motif_jax.envs.world import World
from motif_jax.learner.losses import Rollouts, Unroll
from motif_jax.learner.metrics import Maximum, Metrics, over_steps
from motif_jax.learner.settings import Learning, Settings
from motif_jax.learner.update import (
    ShapeRewards,
    descend,
    learning_rate,
    make_optimizer,
    over_all,
    position_of,
)
from motif_jax.networks.kinds import PROMPT
from motif_jax.networks.policy import Core
from motif_jax.policies.language_policy import PADDING, encode_names, prompt_encoder
from motif_jax.structs import UserError
from motif_jax.tokens import tokeniser_from_text


class RelevanceNetwork(nnx.Module):
    """Maps prompts to Q of all actions."""

    def __init__(self, num_tokens: int, width: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.embedding = nnx.Param(jax.random.normal(rngs.params(), (num_tokens, width)))
        self.prompt_reader = Core(width, width, dtype=dtype, rngs=rngs)
        self.name_reader = Core(width, width, dtype=dtype, rngs=rngs)
        self.hidden = nnx.Linear(2 * width, width, dtype=dtype, rngs=rngs)
        self.last = nnx.Linear(width, 1, dtype=dtype, rngs=rngs)

    def prepare(self, names: jax.Array) -> tuple[jax.Array, jax.Array]:
        """What depends on the parameters alone, for the names of actions, padded with negative numbers. [A, L]

        The input products of the prompt's unit for each token, [V, 3 * width], and each name's final state, [A, width].
        """
        embedding = self.embedding[...].astype(self.prompt_reader.dtype)
        of_names = self.name_reader.project(embedding)
        return self.prompt_reader.project(embedding), _read(self.name_reader, of_names, names)

    def __call__(self, tokens: jax.Array, prepared: tuple[jax.Array, jax.Array]) -> jax.Array:
        """Q of all actions, from prompts padded with negative numbers and the result of `prepare`. [N, L] -> [N, A]"""
        projected, actions = prepared
        states = _read(self.prompt_reader, projected, tokens)  # [N, width]
        shape = (len(states), *actions.shape)
        both = jnp.broadcast_to(states[:, None], shape), jnp.broadcast_to(actions, shape)
        hidden = jax.nn.relu(self.hidden(jnp.concatenate(both, -1)))
        return self.last(hidden)[..., 0].astype(jnp.float32)


def _read(reader: Core, projected: jax.Array, tokens: jax.Array) -> jax.Array:
    """Returns the state after the last token; zero for an empty text. [V, 3 * width], [N, L] -> [N, width]"""
    count, length = tokens.shape
    inputs = projected[jnp.maximum(tokens, 0).T]  # [L, N, 3 * width]
    start = jnp.zeros((count, projected.shape[1] // 3))
    memories = reader.unroll(inputs, jnp.zeros((length, count), bool), start)
    read = (tokens >= 0).sum(1)  # [N]
    return jnp.where(read[:, None] > 0, memories[read - 1, jnp.arange(count)], 0)


def drrn_policy_fields(spec: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
    """The fields of `model.Model` for a DRRN. If `seed` is None, parameters are shapes only."""
    own = spec[DRRN]
    tokeniser = tokeniser_from_text(own["tokeniser"])
    names = encode_names(tokeniser, own["actions"], "--config.env")
    actions = np.full((len(names), max(map(len, names))), PADDING, np.int32)
    for row, name in zip(actions, names, strict=True):
        row[: len(name)] = name
    prompts = prompt_encoder(tokeniser, own["max_tokens"], "--config.drrn.max_tokens", full=True)
    smallest = np.int16 if tokeniser.size <= np.iinfo(np.int16).max else np.int32  # saves memory in the replay buffer

    def make() -> RelevanceNetwork:
        dtype, rngs = jnp.dtype(spec["dtype"]), nnx.Rngs(seed or 0)
        return RelevanceNetwork(tokeniser.size, own["width"], dtype=dtype, rngs=rngs)

    graph, params = nnx.split(nnx.eval_shape(make) if seed is None else make(), nnx.Param)

    def prepare(params: Any, frozen: Any) -> Any:
        return nnx.merge(graph, params).prepare(jnp.asarray(actions))

    def step(params: Any, frozen: Any, observations: Any, first: jax.Array, core: jax.Array, prepared: Any) -> Any:
        with jax.named_scope("drrn"):
            values = nnx.merge(graph, params)(observations["tokens"], prepared)
        return values, values.max(-1), core

    def unroll(params: Any, frozen: Any, observations: Any, first: jax.Array, core: jax.Array) -> Any:
        tokens = observations["tokens"]  # [T, B, L]
        flat = {"tokens": tokens.reshape(-1, tokens.shape[-1])}
        values, largest, _ = step(params, frozen, flat, first, core, prepare(params, frozen))
        return values.reshape(*tokens.shape[:2], -1), largest.reshape(tokens.shape[:2])

    def encode(observations: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {"tokens": prompts(observations).astype(smallest)}

    return {
        "params": params, "prepare": prepare, "step": step, "unroll": unroll, "reads": (PROMPT,), "core_size": 0,
        "num_actions": spec["num_actions"], "encode": encode,
    }  # fmt: skip


# ---- Q-learning


class StoredSteps(NamedTuple):
    """T steps of B games; a `ReplayBuffer` has N of these batches, on an additional leading axis."""

    observations: Mapping[str, jax.Array]  # [T + 1, B, ...]
    action: jax.Array  # [T, B] int32
    reward: jax.Array  # shaped when the steps were taken. [T, B] float32
    terminated: jax.Array  # [T, B] bool
    truncated: jax.Array  # [T, B] bool


class ReplayBuffer(NamedTuple):
    """The newest N batches."""

    steps: StoredSteps  # [N, ...] each
    added: jax.Array  # total number of added batches. int32


def make_replay(
    batches: int, length: int, games: int, observations: Mapping[str, jax.ShapeDtypeStruct]
) -> ReplayBuffer:
    """An empty buffer of N `batches`, each of T steps (`length`) of B `games`; `observations`: of one game."""
    shape = batches, length, games
    seen = {
        name: jnp.zeros((batches, length + 1, games, *spec.shape), spec.dtype) for name, spec in observations.items()
    }
    others = [jnp.zeros(shape, kind) for kind in (jnp.int32, jnp.float32, bool, bool)]
    return ReplayBuffer(StoredSteps(seen, *others), jnp.zeros((), jnp.int32))


def add(replay: ReplayBuffer, steps: StoredSteps, usable: jax.Array | bool = True) -> ReplayBuffer:
    """Replaces the oldest batch by a new one; does nothing if not `usable`, [] bool."""
    slot = replay.added % len(replay.steps.action)
    kept = jax.tree.map(lambda ring, new: ring.at[slot].set(jnp.where(usable, new, ring[slot])), replay.steps, steps)
    return ReplayBuffer(kept, replay.added + usable)


def count_steps(replay: ReplayBuffer) -> jax.Array:
    """Returns the number of stored steps. int32"""
    batches, length, games = replay.steps.action.shape
    return jnp.minimum(replay.added, batches) * (length * games)


def draw(replay: ReplayBuffer, key: jax.Array, count: int) -> tuple[StoredSteps, Mapping[str, jax.Array]]:
    """Draws n = `count` steps with replacement; at least one batch must have been added. [n, ...] each

    Returns them with the observations before the action, and the observations after it; for a truncated step, those
    before it.
    """
    steps, shape = replay.steps, replay.steps.action.shape
    # The first of two keys: earlier versions used the other one, and resumed runs go on with the same draws.
    index = jax.random.randint(jax.random.split(key)[0], (count,), 0, count_steps(replay))
    batch, t, game = jnp.unravel_index(index, shape)
    action, reward, terminated, truncated = (array[batch, t, game] for array in steps[1:])
    after = t + 1 - (truncated & ~terminated)  # the observation after a cut belongs to another episode
    seen, following = ({key: rows[batch, at, game] for key, rows in steps.observations.items()} for at in (t, after))
    return StoredSteps(seen, action, reward, terminated, truncated), following


class QState(NamedTuple):
    """The learner's state."""

    params: Any
    optimizer: Any
    version: jax.Array  # updates done. int32
    replay: ReplayBuffer


def init_q_state(params: Any, settings: Settings, replay: ReplayBuffer) -> QState:
    """Makes the state before the first update."""
    return QState(params, make_optimizer(settings).init(params), jnp.zeros((), jnp.int32), replay)


def make_q_update(
    unroll: Unroll, shape_rewards: ShapeRewards, settings: Settings, replay: DrrnSection, seed: int
) -> Callable[..., Any]:
    """Makes the learner's step on one device: `update(state, frozen, rollouts) -> (state, metrics)`.

    The update adds the rollouts to the buffer, then takes num_epochs * num_minibatches optimizer steps, each on newly
    drawn transitions. If a reward is not finite, the buffer is not changed; if a reward or a step is not finite,
    parameters and optimizer are not changed, and `metrics["finite"]` is 0. Draws depend only on the seed and the
    version. `unroll`: of a network without memory, whose logits are Q. `shape_rewards`: see update.py.
    """
    optimizer, count = make_optimizer(settings), replay.minibatch_size
    num_steps = settings.num_epochs * settings.num_minibatches

    def values_of(params: Any, frozen: Any, observations: Mapping[str, jax.Array]) -> jax.Array:
        """Computes Q of all actions in n states. [n, ...] -> [n, A]"""
        single = {name: array[None] for name, array in observations.items()}  # T = 1
        return unroll(params, frozen, single, jnp.ones((1, count), bool), jnp.zeros((count, 0)))[0][0]

    def loss_of(params: Any, frozen: Any, drawn: StoredSteps, target: jax.Array) -> tuple[jax.Array, Metrics]:
        q = values_of(params, frozen, drawn.observations)
        chex.assert_rank([q, target], [2, 1])
        chosen = jnp.take_along_axis(q, drawn.action[:, None], -1)[:, 0]
        loss = optax.huber_loss(chosen, target).mean()
        log_all = jax.nn.log_softmax(q)
        return loss, {
            "loss": loss, "td_error": jnp.abs(chosen - target).mean(), "value_mean": chosen.mean(),
            "value_max": Maximum(chosen.max()), "target_mean": target.mean(),
            "entropy": -(jnp.exp(log_all) * log_all).sum(-1).mean(),
        }  # fmt: skip

    def update(state: QState, frozen: Any, rollouts: Rollouts) -> tuple[QState, Metrics]:
        with jax.named_scope("rewards"):
            rewards = shape_rewards(rollouts)
            chex.assert_equal_shape([*rewards, rollouts.reward])
        ends = rollouts.terminated, rollouts.truncated
        new = StoredSteps(rollouts.observations, rollouts.action, rewards.total, *ends)
        usable = jnp.isfinite(rewards.total).all()
        kept = add(state.replay, new, usable)
        rate = learning_rate(settings, position_of(rollouts, state.version), state.optimizer)

        def step(learnt: tuple[Any, Any], key: jax.Array) -> tuple[tuple[Any, Any], Metrics]:
            params, optimizer_state = learnt
            with jax.named_scope("draw"):
                drawn, following = draw(kept, key, count)
            with jax.named_scope("targets"):
                after = values_of(params, frozen, following)
                never = settings.bootstrap == "never"
                ended = drawn.terminated | drawn.truncated if never else drawn.terminated
                target = drawn.reward + settings.discount * jnp.where(ended, 0.0, after.max(-1))
            gradients, means = jax.grad(loss_of, has_aux=True)(params, frozen, drawn, target)
            *stepped, norms = descend(optimizer, params, optimizer_state, gradients, rate)
            finite = jnp.isfinite(jnp.stack([means["loss"], *norms.values()])).all()
            return tuple(stepped), means | norms | {"finite": finite}

        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), state.version), num_steps)
        before = state.params, state.optimizer
        after, steps = jax.lax.scan(step, before, keys)
        metrics = over_steps(steps) | {"finite": steps["finite"].min() & usable}
        lag = state.version - rollouts.version
        metrics |= over_all(jnp.ones_like(rollouts.terminated), lag, rewards, rollouts.action)
        metrics |= {"learning_rate": rate, "replay_steps": count_steps(kept)}
        params, optimizer_state = jax.tree.map(lambda new, old: jnp.where(metrics["finite"], new, old), after, before)
        return QState(params, optimizer_state, state.version + 1, kept), jax.tree.map(jnp.float32, metrics)

    return update


def make_q_learner(config: Any, world: World, learning: Learning) -> tuple[Callable[[Any], QState], Callable[..., Any]]:
    """A function that makes the learner's state from parameters, and the update, which is not compiled yet."""
    section, model, mesh = config.policy, learning.model, learning.mesh
    if mesh.size > 1:
        raise UserError(f"q_learning uses one device, and here are {mesh.size} (--config.policy.num_devices=1)")
    settings: DrrnSection = config.plugins[DRRN]
    games = section.batch_size // section.rollout_length
    rows = {name: np.zeros((1, 1, *world.specs[name].shape), world.specs[name].dtype) for name in model.reads}
    encoded = {name: jax.ShapeDtypeStruct(array.shape[2:], array.dtype) for name, array in model.encode(rows).items()}

    def make_state(params: Any) -> QState:
        replay = make_replay(settings.capacity // section.batch_size, section.rollout_length, games, encoded)
        return init_q_state(params, learning.settings, replay)

    return make_state, make_q_update(model.unroll, learning.shape_rewards, learning.settings, settings, config.seed)
