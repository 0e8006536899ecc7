"""Configs with `reference` against the published ones of GLAM and ILQL, and what is refused."""

import runpy
from types import SimpleNamespace

import pytest
from conftest import ROOT, check_stage, get_config

from motif_jax.config.renamed import current_config
from motif_jax.config.table import flatten, table_of
from motif_jax.offline.recipes import names, recipe_of
from motif_jax.policies.decoding import decodings_of, describe_unused
from motif_jax.stages import evaluate
from motif_jax.stages.train_values import ValuesSection, unused_values
from motif_jax.structs import UserError

pytestmark = [pytest.mark.quick, pytest.mark.repository]
WORLDS = ("wordle", "dialogue", "comments")
# By world and recipe, in the words of the published configs: lr, bsize * grad_accum_steps, tau, cql_loss_weight.
ILQL = {"wordle": (1e-5, 64 * 16, 0.7, 1e-4), "dialogue": (1e-5, 64, 0.8, 1.0), "comments": (1e-4, 64, 0.6, 0.25)}
# lr, weight_decay, bsize * grad_accum_steps
CLONING = {"wordle": (1e-4, 0.01, 64), "dialogue": (1e-4, 0.0, 2 * 128), "comments": (1e-4, 0.0, 64)}
OTHERS = {
    "cql": {"learning_rate": 1e-4, "batch_size": 64, "conservative_weight": 0.1},
    "psi": {"learning_rate": 1e-5, "batch_size": 64, "conservative_weight": 0.0, "reward_scale": 0.1},
    "utterance_ilql": {"learning_rate": 1e-4, "batch_size": 64, "expectile": 0.9},
    "chai": {"learning_rate": 1e-5, "batch_size": 4 * 4, "conservative_weight": 0.1, "replies": 5},
    "decision_transformer": {"learning_rate": 1e-4, "batch_size": 64},
}
PUBLISHED = [name for name in names() if not recipe_of(name).plays]
SAME = {"mean_over_all_tokens": True, "learning_rate_end": 1.0, "warmup_steps": 0, "max_gradient_norm": 0.0}


def reference(world, recipe):
    file, argument = current_config("ilql", f"{world},{recipe},reference")
    return flatten(get_config(f"{file}.py", argument).to_dict())


def assert_has(config, section, values):
    assert {name: config[f"{section}.{name}"] for name in values} == values


@pytest.mark.parametrize("recipe", PUBLISHED)
@pytest.mark.parametrize("world", WORLDS)
def test_reference_has_the_published_values(world, recipe):
    config = reference(world, recipe)
    cloning = dict(zip(("learning_rate", "weight_decay", "batch_size"), CLONING[world], strict=True)) | SAME
    values = dict(zip(("learning_rate", "batch_size", "expectile", "conservative_weight"), ILQL[world], strict=True))
    plain = recipe.removesuffix("+joint")
    if plain in ("bc", "filtered_bc"):
        values = cloning
    elif plain in OTHERS:
        values = OTHERS[plain]
    assert_has(config, "train_language", cloning)
    values = {"weight_decay": 0.0, "discount": 0.99, "polyak": 0.005, "double_q": True, "q_weight": 1.0,
              "v_weight": 1.0, "policy_weight": 1.0, "margin_weight": 0.0} | SAME | values  # fmt: skip
    section = {key.removeprefix("train_values."): value for key, value in config.items()}
    unused = unused_values(recipe_of(recipe), SimpleNamespace(**section))
    assert_has(config, "train_values", {name: value for name, value in values.items() if name not in unused})


@pytest.mark.parametrize(("world", "recipe", "values"), [
    ("wordle", "ilql", {"betas": "0,16", "clip": 0.0, "max_tokens": 6}),
    ("dialogue", "ilql", {"betas": "0,8,16", "clip": float("inf"), "max_tokens": 40}),
    ("dialogue", "cql", {"betas": "0,8"}),
    ("dialogue", "psi", {"betas": "0,8"}),
    ("dialogue", "utterance_ilql", {"candidates": 4, "betas": "0"}),
    ("dialogue", "decision_transformer", {"wanted_return": -5.7, "betas": "0"}),
    ("wordle", "decision_transformer", {"wanted_return": 0.0}),  # -5.7 would be to lose
    ("comments", "ilql+joint", {"betas": "0,8", "clip": float("inf"), "max_tokens": 256}),
    ("dialogue", "awac", {"betas": "0"}),
])  # fmt: skip
def test_reference_decodes_as_published(world, recipe, values):
    assert_has(reference(world, recipe), "decoding", values)


@pytest.mark.parametrize("file", ["ilql.py", "ilql_quickstart.py"])
def test_no_config_sets_a_value_that_its_recipe_does_not_use(file):
    """Every run would begin with a line about it."""
    for word in (*names(), *(f"{name},reference" for name in PUBLISHED)):
        config = get_config(file, f"wordle,{word}")
        recipe = recipe_of(config.train_values.recipe)
        for name in unused_values(recipe, config.train_values):
            assert config.train_values[name] == table_of(ValuesSection)[name].default, (word, name)
        assert describe_unused(recipe, decodings_of(config.decoding)) == []


def test_a_world_without_published_configs_has_no_reference():
    assert get_config("ilql.py", "maze,ilql").env.world == "maze"
    with pytest.raises(UserError, match=r"published no configs for the world 'maze' \(--config\)"):
        get_config("ilql.py", "maze,ilql,reference")
    with pytest.raises(UserError, match=r"published no configs for the recipe 'grpo' \(--config\)"):
        get_config("ilql.py", "wordle,grpo,reference")


GLAM = {
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
    assert {name: config[name] for name in GLAM} == GLAM
    ours = flatten(get_config("glam.py", "mixed_train").to_dict())
    assert not ours["policy.language.reference_heads"]
    assert ours["policy.normalise_advantages"]
    assert (ours["policy.extrinsic_coefficient"], ours["policy.clip_value"]) == (1.0, 0.0)


@pytest.mark.parametrize("level", [*runpy.run_path(str(ROOT / "configs/glam.py"))["LEVELS"]])
def test_the_recipe_for_a_pretrained_player_fits_every_level(level):
    config = get_config("glam.py", f"{level},smollm2")
    check_stage(evaluate, config)
    assert bool(config.evaluate.controls) == (level != "go_to_french")
