import jax
import numpy as np
import pytest
from conftest import assert_same_bits, get_config, viewed
from train_policy_test import settings

from motif_jax.devices.checkpoints import reading
from motif_jax.devices.mesh import place
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.networks.kinds import BY_SPECS, FIXED, LANGUAGE
from motif_jax.policies.checkpoints import PolicyCheckpoints, TrainingProgress
from motif_jax.policies.learning import make_place
from motif_jax.rewards.source import make_sources
from motif_jax.stages.train_policy.loop import assemble


def config_of(network):
    if network != LANGUAGE:
        return settings(network=network, games_per_worker=4, rollout_length=2, batch_size=8)
    config = get_config("glam_quickstart.py", "goto_local,unread")
    config.policy.update({"num_workers": 0, "games_per_worker": 4, "rollout_length": 2, "batch_size": 8})
    config.policy.language.update({"width": 8, "layers": 1, "heads": 2, "hidden": 8})
    return config


def rollouts_of(config, parts, seed):
    """A batch that nobody played, on the devices: zeros as observations, anything else at random."""
    rng, steps = np.random.default_rng(seed), config.policy.rollout_length
    shape = steps, config.policy.batch_size // steps
    specs = {
        name: parts.world.specs[name] for name in {*parts.learner.model.reads, *parts.learner.sources.observations}
    }
    arrays = {name: np.zeros((steps + 1, shape[1], *spec.shape), spec.dtype) for name, spec in specs.items()}
    arrays |= {name: rng.random(shape, np.float32) for name in ("value", "reward")}
    arrays |= {name: rng.random(shape) < 0.2 for name in ("terminated", "truncated")}
    ended = arrays["terminated"] | arrays["truncated"]
    return make_place(parts.learner)(arrays | {
        "first": np.concatenate([np.ones_like(ended[:1]), ended]),
        "core": np.zeros((1, shape[1], parts.learner.model.core_size), np.float32),
        "action": rng.integers(len(parts.world.action_names), size=shape, dtype=np.int32),
        "logits": rng.random((*shape, len(parts.world.action_names)), np.float32),
        "version": np.zeros(shape, np.int32),
    }).rollouts  # fmt: skip


def check_goes_on(config, tmp_path):
    """A network goes on from no steps and from its first update."""
    parts = assemble(viewed(config), tmp_path, make_sources, 1)
    learner = parts.learner
    frozen = learner.model.frozen

    def updated(whole, number):
        state, metrics = learner.update(
            place(whole["learner"], learner.mesh), frozen, rollouts_of(config, parts, number)
        )
        assert metrics["finite"] == 1
        return {"learner": jax.device_get(state), "frozen": frozen}

    def saved(whole, done):
        keeper = PolicyCheckpoints(viewed(config), tmp_path, parts.spec, learner.sources, writes=True)
        keeper.frozen = frozen
        keeper.save(whole["learner"], done)
        keeper.close()
        with reading(tmp_path / "checkpoints") as checkpoints:
            _, arrays, metadata = checkpoints.readable("last")
        assert TrainingProgress(**metadata["progress"]) == done
        return rebuild(whole, leaves_by_path(arrays), tmp_path)

    new = {"learner": jax.device_get(learner.make_state(learner.model.params)), "frozen": frozen}
    assert_same_bits(saved(new, TrainingProgress()), new)
    first = updated(new, 1)
    assert any(not np.array_equal(*pair) for pair in zip(*map(jax.tree.leaves, (new, first)), strict=True))
    assert_same_bits(updated(saved(first, TrainingProgress(env_steps=8, updates=1)), 2), updated(first, 2))


@pytest.mark.parametrize("network", [*FIXED, *BY_SPECS, LANGUAGE])
def test_every_network_goes_on_from_no_steps_and_from_its_first_update(network, tmp_path):
    check_goes_on(config_of(network), tmp_path)
