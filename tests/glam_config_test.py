"""The configs of GLAM: `configs/glam.py:LEVEL,reference` against the published ones, and what is refused."""

import runpy

import pytest
from conftest import ROOT, get_config

from motif_jax.config.table import flatten
from motif_jax.stages import evaluate

pytestmark = pytest.mark.quick
PUBLISHED = {
    "env.babyai.window": 3, "env.babyai.reference_families": True, "env.babyai.reference_french": True,
    "policy.games_per_worker": 32, "policy.rollout_length": 40, "policy.batch_size": 32 * 40,
    "policy.num_epochs": 4, "policy.num_minibatches": 32 * 40 // 64, "policy.train_for_env_steps": 1_500_000,
    "policy.discount": 0.99, "policy.gae_lambda": 0.99, "policy.bootstrap": "never",
    "policy.learning_rate": 1e-6, "policy.adam_eps": 1e-5, "policy.max_gradient_norm": 0.5,
    "policy.clip_ratio": 0.2, "policy.clip_value": 0.2, "policy.value_coefficient": 0.5,
    "policy.exploration_coefficient": 0.01, "policy.normalise_advantages": False,
    "policy.extrinsic_coefficient": 20.0, "policy.language.formula": "raw_logits", "policy.language.hidden": 1024,
    "policy.language.reference_heads": True,
}  # fmt: skip


@pytest.mark.differs(
    "glam",
    there="rewards are at most 20, the value clip is 0.2, and advantages are not normalised",
    here="rewards are at most 1, values are not clipped, and advantages are normalised",
    reference="as published",
)
def test_reference_has_the_published_values_of_glam():
    config = flatten(get_config("glam.py", "mixed_train,reference").to_dict())
    assert {name: config[name] for name in PUBLISHED} == PUBLISHED
    ours = flatten(get_config("glam.py", "mixed_train").to_dict())
    assert not ours["policy.language.reference_heads"]
    assert ours["policy.normalise_advantages"]
    assert (ours["policy.extrinsic_coefficient"], ours["policy.clip_value"]) == (1.0, 0.0)


@pytest.mark.parametrize("level", [*runpy.run_path(str(ROOT / "configs/glam.py"))["LEVELS"]])
def test_the_recipe_for_a_pretrained_player_fits_every_level(level):
    config = get_config("glam.py", f"{level},smollm2")
    evaluate.STAGE.check(evaluate.STAGE.view(config.to_dict()))
    assert bool(config.evaluate.controls) == (level != "go_to_french")
