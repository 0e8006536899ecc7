"""Every program that runs on a device also lowers for GPUs and TPUs, which a machine without one can check."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import on_devices
from jax import export
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from motif_jax.devices.mesh import make_mesh, map_update, place, replicate, shard, shardings
from motif_jax.envs.nethack.observations import OBSERVATIONS
from motif_jax.learner.acting import ALONE
from motif_jax.learner.settings import Settings
from motif_jax.learner.update import Rollouts, init_state, make_policy_update
from motif_jax.networks.kinds import to_record
from motif_jax.policies.learning import make_shape_rewards
from motif_jax.policies.model import PolicyPlayer, make_policy_model, pack
from motif_jax.rewards import preference
from motif_jax.rewards.learnt_source import LearntSource, Mix
from motif_jax.rewards.preference import PairBatches
from motif_jax.rewards.rnd import Novelty
from motif_jax.rewards.source import RewardSource, RewardSources, Weighted
from motif_jax.structs import ArraySpec

T, B, A = 4, 16, 23
OTHERS = {  # observations that the network "general" reads, one of each kind
    "mission": ArraySpec((40,), "uint8", "text"),
    "speed": ArraySpec((3,), "float32", "vector"),
    "direction": ArraySpec((), "int32", "category", 4),
    "view": ArraySpec((7, 7, 3), "uint8", "grid"),
    "camera": ArraySpec((84, 84, 4), "uint8", "image"),
}
MIX = Mix(extrinsic=0.1, intrinsic=0.1, scale=0.1, clip=10.0, threshold=0.0, count_exponent=3.0)

LEARNT = LearntSource.__new__(LearntSource)  # its arithmetic alone, without a reward
LEARNT.mix = MIX
SOURCES = RewardSources([Weighted("learnt", "", 0.1, LEARNT), Weighted("rnd", "", 0.2, RewardSource())])


@pytest.fixture(autouse=True)
def accelerator(monkeypatch):
    """Networks are built as they are where the default backend is not the CPU."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def lower(program, *arguments) -> None:
    """Compiles for both platforms as far as is possible without them; raises where an operation has no rule there."""
    arguments = jax.tree.map(jnp.asarray, arguments)
    for platform in ("cuda", "tpu"):
        exported = export.export(program, platforms=[platform])(*arguments)
        assert exported.platforms == (platform,)
        assert exported.mlir_module_serialized


def observations(names, *leading):
    specs = OBSERVATIONS | OTHERS
    return {name: np.zeros((*leading, *specs[name].shape), specs[name].dtype) for name in names}


def policy_model(network, dtype, acting=ALONE):
    spec = {"network": network, "num_actions": A, "dtype": dtype, "reads": to_record(OTHERS)}
    return make_policy_model(spec | acting.record, 0)._replace(acting=acting)


@pytest.mark.parametrize(
    ("network", "dtype"), [("reference", "bfloat16"), ("small", "float32"), ("general", "bfloat16")]
)
def test_the_policy_step_lowers(network, dtype):
    model = policy_model(network, dtype)
    player = PolicyPlayer(model, B, B, seed=0)
    sent, layout = pack((np.int32(0), observations(model.reads, B), np.zeros(B, bool), np.zeros(B, np.int32)))
    step = jax.jit(lambda *arguments: player._step(*arguments, layout))
    lower(step, player._played.leaves, player._memory, player._key, sent)


@pytest.mark.parametrize(("network", "algorithm", "dtype"), [
    ("reference", "appo", "bfloat16"), ("small", "impala", "float32"), ("general", "appo", "bfloat16"),
    ("film", "ppo", "float32"),
])  # fmt: skip
def test_the_update_of_the_policy_lowers(network, algorithm, dtype):
    lower_update(network, dtype, algorithm)


def lower_update(network, dtype, algorithm, fsdp=1, tensor=1, acting=ALONE):
    model = policy_model(network, dtype, acting)
    settings = Settings(algorithm=algorithm, num_epochs=2, num_minibatches=2)
    update = make_policy_update(model.unroll, make_shape_rewards(MIX, SOURCES, acting), settings, acting)
    steps = np.zeros((T, B), np.float32)
    rollouts = Rollouts(
        observations=observations(model.reads, T + 1, B),
        first=np.zeros((T + 1, B), bool),
        core=np.zeros((1, B, model.core_size), np.float32),
        action=steps.astype(np.int32),
        logits=np.zeros((T, B, A + acting.more_outputs), np.float32),
        value=steps,
        version=steps.astype(np.int32),
        reward=steps,
        terminated=steps.astype(bool),
        truncated=steps.astype(bool),
        reward_inputs={"learnt": {"z": steps, "counts": np.ones((T, B), np.uint8)}, "rnd": {"reward": steps}},
        recorded={name: steps.astype(np.int32) for name in acting.recorded},
    )
    mesh = make_mesh(fsdp=fsdp, tensor=tensor)
    state = place(init_state(model.params, settings), mesh)
    results = shardings(state, mesh), NamedSharding(mesh, P())
    program = map_update(update, mesh, 1, num_constants=1, results=results)
    lower(program, state, model.frozen, shard(rollouts, mesh, axis=1))


@pytest.mark.slow
@on_devices(8)
def test_the_update_of_the_policy_lowers_with_parameters_that_are_cut():
    jax.default_backend = lambda: "gpu"
    for network, fsdp, tensor in (("small", 2, 2), ("reference", 4, 2)):
        lower_update(network, "float32", "appo", fsdp, tensor)


def test_the_update_and_the_bonus_of_novelty_lower():
    specs = {name: OBSERVATIONS[name] for name in ("crop", "blstats", "message")}
    novelty, mesh = Novelty(specs, 32, 16, 1e-4), make_mesh()
    state = replicate(novelty.init(jax.random.key(0)), mesh)
    batch = observations(specs, T + 1, B), np.zeros((T, B), np.int32)
    lower(map_update(novelty.update, mesh, 1), state, shard(batch, mesh, axis=1))
    lower(jax.jit(novelty.bonus), novelty.init(jax.random.key(0)), observations(specs, B))


@pytest.mark.parametrize("reads", [{}, {"blstats": True, "crop": True, "glyphs": True}])
def test_the_training_of_the_reward_lowers(reads):
    options = {"message": "lt_cnn", "blstats": False, "crop": False, "glyphs": False} | reads
    apply, params = preference.make_reward_model(options, 0)
    optimizer = optax.adam(1e-4)
    mesh = make_mesh()
    update = map_update(preference.make_reward_update(apply, optimizer), mesh, batch_axis=1, num_constants=2)
    state = replicate(preference.TrainState(params, optimizer.init(params), preference.zero_sums()), mesh)
    texts, items = np.zeros((7, 80), np.uint8), np.zeros((2, 1, B), np.int32)
    more = observations(["blstats", "glyphs"], 2, 1, B)
    extra = {"vector": np.zeros((2, 1, B, 27), np.float32), **more} if reads else {}
    weight = np.ones((2, 1, B), np.float32)
    batches = PairBatches(items, extra, np.zeros((2, 1, B, 2, 1), np.int32), weight, weight, weight)
    lower(update, state, replicate(texts, mesh), replicate(np.int32(0), mesh), shard(batches, mesh, axis=1))
    lower(preference.make_value(apply), params, texts, items[0, 0], {name: extra[name][0, 0] for name in extra})
