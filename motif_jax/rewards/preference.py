"""Learning from preferences: the Bradley-Terry loss with soft labels (Motif, section 2.2), and its training step.

P(second is better) = softmax(r(first), r(second))[1], where r is the mean reward over the steps of a moment

loss = - (1 - p) log P(first is better) - p log P(second is better), p = 0, 1, 1/2 for a tie, or the annotator's own
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
from jax.sharding import Mesh

from motif_jax.devices.mesh import map_update, replicate, shard, total
from motif_jax.networks.reward import RewardModel

# Splits preference pairs into batches: the captions of each batch, and the index of the caption at every step.
#
# Messages repeat, so a batch of 1,024 pairs has perhaps 150 different ones. The network runs once on each of these, and
# its outputs are gathered for the pairs. For models that read more than the message, every step is a separate item.

Array = Any  # a NumPy array, or a JAX array once it is on the devices
Extra = Callable[[np.ndarray], dict[str, np.ndarray]]  # row numbers [m] -> inputs of the model, [m, 2, L, ...] each
STEP = 16  # numbers of items are rounded up to this, so that few different shapes are compiled


class PairBatches(NamedTuple):
    """S batches for n devices: per batch, each device has K items and b pairs. Padding pairs have weight 0."""

    captions: Array  # [S, n, K] int32: the caption of each item
    extra: dict[str, Array]  # [S, n, K, ...]: further inputs of the model for each item
    shows: Array  # [S, n, b, 2, L] int32: the item that each step shows
    target: Array  # [S, n, b] float32: P(second is better)
    weight: Array  # [S, n, b] float32: 1, or 0 for padding
    sided: Array  # [S, n, b] float32: 1 where there is a preference


class Split(NamedTuple):
    """Row numbers of the pairs for training and for validation."""

    train: np.ndarray
    validation: np.ndarray


def split_rows(known: np.ndarray, share: float, seed: int) -> Split:
    """Splits the rows: a share of them is for validation, the same rows for the same seed."""
    order = np.random.default_rng([seed, 80]).permutation(known)
    cut = len(order) - round(share * len(order))
    return Split(np.sort(order[:cut]), np.sort(order[cut:]))


def without_padding(messages: np.ndarray) -> np.ndarray:
    """Leaves out trailing columns of zeros; the width W stays a multiple of 8. [U, 256] -> [U, W]"""
    width = max(1, int((messages != 0).any(0).nonzero()[0].max(initial=0)) + 1)
    return messages[:, : width + -width % 8]


def epoch_order(rows: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """The rows, shuffled for an epoch."""
    return np.random.default_rng([seed, epoch]).permutation(rows)


def make_batches(
    rows: np.ndarray,
    ids: np.ndarray,
    target: np.ndarray,
    batch_size: int,
    num_devices: int,
    extra: Extra | None = None,
    least_items: int = 0,
    sided: np.ndarray | None = None,
) -> PairBatches:
    """Splits rows [M] into batches, in their order.

    `ids`, `target`: the caption of every step of both moments [N, 2, L], and P(second is better) [N]. `batch_size`,
    `num_devices`: pairs per batch, over all n devices, which must divide it. `extra`: further inputs of the model; with
    these, repeated captions stay separate. `least_items`: minimum of K. `sided`: whether a pair has a preference; by
    default where the target is not 1/2. [N] bool
    """
    steps = -(-len(rows) // batch_size)
    flat = np.full(steps * batch_size, rows[0], np.int64)  # padded with a row that has a label
    flat[: len(rows)] = rows
    padded = flat.reshape(steps, num_devices, batch_size // num_devices)
    weight = (np.arange(padded.size) < len(rows)).astype(np.float32).reshape(padded.shape)
    shown = np.asarray(ids[flat]).reshape(steps * num_devices, -1)  # [S * n, b * 2 * L]
    if extra:
        items, shows = list(shown), np.broadcast_to(np.arange(shown.shape[1], dtype=np.int32), shown.shape)
    else:
        distinct = [np.unique(part, return_inverse=True) for part in shown]
        items, shows = [part for part, _ in distinct], np.stack([inverse for _, inverse in distinct])
    more = extra(flat) if extra else {}
    count = max(least_items, *map(len, items))
    count += -count % STEP if not extra else 0
    captions = np.zeros((len(items), count), np.int32)
    for row, part in zip(captions, items, strict=True):
        row[: len(part)] = part
    return PairBatches(
        captions.reshape(steps, num_devices, count),
        {name: array.reshape(steps, num_devices, count, *array.shape[3:]) for name, array in more.items()},
        shows.astype(np.int32).reshape(*padded.shape, *ids.shape[1:]),
        target[padded].astype(np.float32),
        weight,
        (target != 0.5 if sided is None else sided)[padded] * weight,
    )


# ---- the model: pure functions of its parameters

Apply = Callable[[Any, Mapping[str, jax.Array]], jax.Array]  # parameters, inputs of the model -> [K]
CHUNK = 1024  # captions valued at a time
Value = Callable[..., jax.Array]


def make_reward_model(options: Mapping[str, Any], seed: int) -> tuple[Apply, Any]:
    """The RewardModel with these arguments as a function of parameters and inputs; its initial parameters."""
    graph, params = nnx.split(RewardModel(**options, rngs=nnx.Rngs(seed)), nnx.Param)

    def apply(params: Any, inputs: Mapping[str, jax.Array]) -> jax.Array:
        return nnx.merge(graph, params)(inputs)

    return apply, params


def make_value(apply: Apply) -> Value:
    """Compiles the model: (parameters, texts [U, W], caption numbers [K], other inputs by name) -> [K]."""
    return jax.jit(lambda params, table, ids, more: apply(params, more | {"message": table[ids]}))


def value_captions(value: Value, params: Any, table: jax.Array) -> np.ndarray:
    """The raw reward of every caption. [U, W] -> [U]"""
    return in_equal_chunks(lambda ids: value(params, table, ids, {}), table.shape[0], CHUNK)


def in_equal_chunks(compute: Callable[[np.ndarray], Any], count: int, most: int) -> np.ndarray:
    """Computes values of rows 0 to `count`, always of K <= `most`: row numbers [K] -> [K, ...]. [count, ...]"""
    chunk = min(most, count)
    rows = np.arange(count + -count % chunk).reshape(-1, chunk) % count
    return np.concatenate([np.asarray(compute(part)) for part in rows])[:count]


def in_chunks(compute: Callable[[np.ndarray], Any], count: int, most: int) -> np.ndarray:
    """Computes values of rows 0 to `count`, at most `most` at a time: row numbers [K] -> [K] numbers. [count] float32

    K is a power of two, so that few shapes are compiled; some rows are repeated for that.
    """
    values = np.empty(count, np.float32)
    for start in range(0, count, most):
        size = min(most, count - start)
        rows = start + np.arange(1 << (size - 1).bit_length()) % size
        values[start : start + size] = np.asarray(compute(rows))[:size]
    return values


# ---- the training step


class Sums(NamedTuple):
    """Sums over the batches of an epoch, kept on the device."""

    pairs: jax.Array
    loss: jax.Array
    sided: jax.Array  # pairs with a preference
    right: jax.Array  # of these, those where the reward prefers the same side
    broken: jax.Array  # 1 + the first step after which loss or parameters were not finite; 0: none


class TrainState(NamedTuple):
    """Everything that a training step updates."""

    params: Any
    optimizer: Any
    sums: Sums


def zero_sums() -> Sums:
    """The sums at the start of an epoch."""
    return Sums(*(jnp.zeros(()) for _ in Sums._fields))


def pair_loss(rewards: jax.Array, target: jax.Array) -> jax.Array:
    """Cross-entropy loss of each pair, from rewards of steps [B, 2, L] and P(second is better) [B]. -> [B]"""
    chex.assert_rank([rewards, target], [3, 1])
    log_p = jax.nn.log_softmax(rewards.mean(-1), -1)
    return -(1 - target) * log_p[:, 0] - target * log_p[:, 1]


def make_reward_update(apply: Apply, optimizer: optax.GradientTransformation) -> Callable[..., TrainState]:
    """Makes the training step, for `mesh.map_update`: `update(state, table, step, batches)` trains on batch `step`.

    `table`: the text of every caption, [U, W] uint8. `batches`: of an epoch, with n = 1 here.
    """

    def update(state: TrainState, table: jax.Array, step: jax.Array, batches: PairBatches) -> TrainState:
        batch: PairBatches = jax.tree.map(lambda array: array[step, 0], batches)
        inputs = batch.extra | {"message": table[batch.captions]}
        pairs = total(batch.weight.sum())

        def loss_of(params: Any) -> tuple[jax.Array, jax.Array]:
            rewards = apply(params, inputs)[batch.shows]  # [b, 2, L]
            losses = pair_loss(rewards, batch.target) * batch.weight
            return losses.sum() / pairs, rewards.mean(-1)

        (loss, rewards), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
        right = batch.sided * ((rewards[:, 1] > rewards[:, 0]) == (batch.target > 0.5))
        loss, gradients, sided, right = total((loss, gradients, batch.sided.sum(), right.sum()))
        old = state.sums
        updates, optimizer_state = optimizer.update(gradients, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in (loss, *jax.tree.leaves(params))]).all()
        broken = jnp.where((old.broken == 0) & ~finite, step + 1.0, old.broken)
        sums = Sums(old.pairs + pairs, old.loss + loss * pairs, old.sided + sided, old.right + right, broken)
        return TrainState(params, optimizer_state, sums)

    return update


class Model(NamedTuple):
    """A network that is trained, and its functions, with the captions on the devices."""

    init: Callable[[int], TrainState]  # from a seed
    value: Value
    update: Callable[..., TrainState]
    table: jax.Array  # [U, W]
    mesh: Mesh

    def learn(self, state: TrainState, batches: PairBatches) -> TrainState:
        placed = shard(batches, self.mesh, axis=1)
        for step in range(len(batches.captions)):
            state = self.update(state, self.table, np.int32(step), placed)
        return state


def make_model(options: Mapping[str, Any], learning_rate: float, messages: np.ndarray, mesh: Mesh) -> Model:
    """Makes the network and its training step, for all devices of the mesh. `messages`: of the captions. [U, 256]"""
    apply, _ = make_reward_model(options, 0)
    optimizer = optax.adam(learning_rate)

    def init(seed: int) -> TrainState:
        _, params = make_reward_model(options, seed)
        return replicate(TrainState(params, optimizer.init(params), zero_sums()), mesh)

    update = map_update(make_reward_update(apply, optimizer), mesh, batch_axis=1, num_constants=2)
    table = replicate(jnp.asarray(without_padding(messages)), mesh)
    return Model(init, make_value(apply), update, table, mesh)
