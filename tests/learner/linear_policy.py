"""A policy, a reward and rollouts that are small enough to be updated in no time."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.devices.mesh import make_mesh, map_update, replicate, shard
from motif_jax.learner.metrics import numbers
from motif_jax.learner.settings import Settings
from motif_jax.learner.update import LearnerState, Rollouts, TrainingRewards, init_state, make_policy_update

T, B, A, D, H = 5, 16, 3, 4, 2
VERSION = 7
# One for most tests: compiling takes longer than running. Adam's first step is the same for a multiple of a gradient.
BASE = Settings(learning_rate=2e-2, max_policy_lag=100, max_gradient_norm=1e9)


def unroll(params, frozen, observations, first, core):
    """A linear policy with a memory that fades, and is lost when an episode begins."""

    def remember(core, step):
        x, first = step
        core = jnp.where(first[:, None], 0.0, core) / 2 + x @ params["core"]
        return core, jnp.concatenate([x, core], -1)

    _, features = jax.lax.scan(remember, core, (observations["x"], first))
    return features @ params["policy"], (features @ params["value"])[..., 0]


def shape_rewards(rollouts):
    intrinsic = 0.5 * rollouts.reward_inputs["m"]
    return TrainingRewards(rollouts.reward + intrinsic, rollouts.reward, intrinsic)


def make_params(inputs: int = D, outputs: int = A):
    rng = np.random.default_rng(0)
    shapes = {"core": (inputs, H), "policy": (inputs + H, outputs), "value": (inputs + H, 1)}
    return {name: (rng.normal(size=shape) / 2).astype(np.float32) for name, shape in shapes.items()}


def make_rollouts(seed: int = 1, **changes) -> Rollouts:
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    terminated, truncated = rng.random((2, T, B)) < 0.1
    rollouts = Rollouts(
        observations={"x": normal(T + 1, B, D)},
        first=np.concatenate([rng.random((1, B)) < 0.2, terminated | truncated]),
        core=normal(1, B, H),
        action=rng.integers(A, size=(T, B), dtype=np.int32),
        logits=normal(T, B, A),
        value=normal(T, B),
        version=np.full((T, B), VERSION - 1, np.int32),
        reward=normal(T, B),
        terminated=terminated,
        truncated=truncated,
        reward_inputs={"m": normal(T, B)},
    )
    return rollouts._replace(**changes)


@functools.cache
def compiled(settings: Settings, devices: int, fsdp: int, policy, **parts):
    mesh = make_mesh(devices, fsdp)
    update = make_policy_update(policy, shape_rewards, settings, **parts)
    return mesh, map_update(update, mesh, batch_axis=1, num_constants=1)


def initial(settings: Settings = BASE, version: int = VERSION) -> LearnerState:
    return init_state(make_params(), settings)._replace(version=jnp.int32(version))


def train(settings: Settings = BASE, rollouts=None, state=None, devices=1, updates=1, fsdp=1, policy=unroll, **parts):
    mesh, update = compiled(settings, devices, fsdp, policy, **parts)
    # a copy: the state is given away
    state = replicate(jax.tree.map(np.array, initial(settings) if state is None else state), mesh)
    placed = shard(make_rollouts() if rollouts is None else rollouts, mesh, axis=1)
    for _ in range(updates):
        state, metrics = update(state, (), placed)
    state, metrics = jax.device_get((state, metrics))
    return state, numbers(metrics)


def assert_same(one, other, atol: float = 1e-6) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), one, other)


def assert_near(one, other, atol: float = 2e-6) -> None:
    """The same states, and the same metrics."""
    assert_same(one[0], other[0], atol)
    assert one[1].keys() == other[1].keys()
    for name, value in other[1].items():
        np.testing.assert_allclose(one[1][name], value, rtol=1e-4, atol=1e-5, err_msg=name)
