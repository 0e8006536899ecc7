"""The training step of every recipe: its loss equals loops over numbers, and cutting batches makes no difference."""

import functools
import re
from dataclasses import asdict, replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import slow_terms
from conftest import on_devices
from linear_policy import assert_same
from tiny_decoder import LANGUAGE, VOCABULARY, WIDTH, new_params, random_rows

from motif_jax.config.table import table_of
from motif_jax.devices.mesh import make_mesh, map_update, replicate, shard
from motif_jax.language.model import ModelFunctions
from motif_jax.offline import update as updates
from motif_jax.offline.recipes import OfflineSettings, ValueTerms, names, recipe_of
from motif_jax.offline.update import (
    Replies,
    TranscriptBatch,
    Weights,
    count,
    init_state,
    make_measure,
    means_of,
    objective_of,
    sum_terms,
)
from motif_jax.stages.train_values import unused_values

RECORDED = [name for name in names() if not recipe_of(name).plays]  # group_loss_test.py has the others
SETTINGS = OfflineSettings(
    learning_rate=1e-2, warmup_steps=0, conservative_weight=0.3, reward_scale=2.0, margin_weight=0.2, margin=0.1,
    advantage_beta=0.8, conservative_temperature=0.7,
)  # fmt: skip


def batch_of(seed=0, num_rows=8, **more):
    rng, size = np.random.default_rng(0), (num_rows, 16)
    arrays = rng.normal(size=(*size, 3, WIDTH)), -rng.random((*size, 3)), rng.uniform(-1, 1, (*size, 2, WIDTH))
    return TranscriptBatch(random_rows(seed, num_rows, **more), Replies(*(one.astype(np.float32) for one in arrays)))


def start(recipe, settings=SETTINGS):
    """A state whose target is not what is learnt, and whose heads say something; and what is given."""
    state = init_state(jax.random.key(1), LANGUAGE, recipe, settings, new_params(2), new_params(3), bias=-0.5)
    other = init_state(jax.random.key(9), LANGUAGE, recipe, settings, new_params(2), new_params(4), bias=-0.3)
    louder = lambda tree: jax.tree_util.tree_map_with_path(  # noqa: E731
        lambda path, leaf: leaf * 50 if "out_kernel" in str(path[-1]) else leaf + 0.01, tree
    )
    learnt = louder(state.learnt)
    if recipe.conditioned:
        learnt["condition"] = {"kernel": jnp.linspace(-1, 1, WIDTH), "bias": jnp.ones(WIDTH)}
    given = {} if recipe.learns_policy else {"policy": new_params(2)}
    return state._replace(learnt=learnt, target=louder(other.target)), given


@functools.cache
def learner(recipe, settings, devices):
    """The compiled update, which most tests call with a batch of one shape, and its mesh."""
    mesh = make_mesh(devices)
    update = map_update(
        updates.make_update(objective_of(LANGUAGE, recipe, settings), settings), mesh, batch_axis=0, num_constants=1
    )
    return update, mesh


def updated(recipe, batch, settings=SETTINGS, devices=1, steps=1):
    state, given = start(recipe, settings)
    update, mesh = learner(recipe, settings, devices)
    state, given = replicate(state, mesh), replicate(given, mesh)
    for _ in range(steps):
        state, metrics = update(state, given, shard(batch, mesh))
    return jax.device_get((state, metrics))


@functools.cache
def reader(recipe, settings):
    """`sum_terms` for a whole batch, without learning, which is slower to compile."""
    return jax.jit(lambda weights, batch: sum_terms(LANGUAGE, recipe, settings, weights, batch) | count(recipe, batch))


def means_on(recipe, settings, weights, batch):
    sums = reader(recipe, settings)(weights, batch)
    return means_of({name: float(value) for name, value in sums.items()}, objective_of(LANGUAGE, recipe, settings))


@pytest.mark.differs("ilql", there="targets are computed with dropout", here="losses are deterministic")
@pytest.mark.differs(
    "ilql",
    there="CHAI's log-sum-exp divides its arguments by their number, and the density of random features is 1 / 2d",
    here="it subtracts the logarithm of the number, and the density is 2 to the power of -d",
)
@pytest.mark.parametrize("name", RECORDED)
def test_the_loss_is_that_of_loops_over_numbers(name):
    recipe = recipe_of(name)
    state, given = start(recipe)
    weights = Weights(state.learnt, state.target, given)
    for packed in (False, True):
        batch = batch_of(5, packed=packed)
        wanted, means = slow_terms.loss_of(recipe, SETTINGS, weights, batch)
        ours = means_on(recipe, SETTINGS, weights, batch)
        for term, mean in means.items():
            np.testing.assert_allclose(ours[term], mean, rtol=2e-4, err_msg=term)
        np.testing.assert_allclose(ours["loss"], wanted, rtol=2e-4)


@pytest.mark.differs(
    "ilql",
    there="cloning's loss is divided by the number of all tokens",
    here="by the number of the agent's tokens",
    reference="as published",
)
@pytest.mark.parametrize(("name", "changes"), [
    ("awac", {"double_q": False}), ("awac", {"value_min": -0.2, "value_max": 0.1}),
    ("awac", {"mean_over_all_tokens": True}), ("awac", {"advantage_sign": True}),
    ("cql", {"value_max": -0.4}), ("cql", {"value_min": 0.4}), ("psi", {"value_max": 1.0}), ("psi", {"value_min": 3.0}),
], ids=str)  # fmt: skip
def test_settings_do_what_they_say(name, changes):
    recipe, settings = recipe_of(name), replace(SETTINGS, **changes)
    state, given = start(recipe, settings)
    weights = Weights(state.learnt, state.target, given)
    wanted, _ = slow_terms.loss_of(recipe, settings, weights, batch_of())
    np.testing.assert_allclose(means_on(recipe, settings, weights, batch_of())["loss"], wanted, rtol=2e-4)


assert_near = functools.partial(assert_same, atol=2e-5)


@pytest.mark.parametrize("name", ["ilql+joint", "chai"])
def test_parts_and_chunks_make_no_difference(name):
    """Both at once; the first recipe has all that is computed in chunks, and the second replies to be cut."""
    recipe, batch = recipe_of(name), batch_of(3)
    cut = updated(recipe, batch, replace(SETTINGS, num_parts=4, chunk=7), steps=2)
    assert_near(updated(recipe, batch, steps=2), cut)


@pytest.mark.differs("ilql", there="padding adds a decision", here="it does not")
@pytest.mark.parametrize("name", ["chai", "awac"])
def test_padding_makes_no_difference(name):
    recipe, batch = recipe_of(name), batch_of(4)
    empty = jax.tree.map(lambda array: np.pad(array, [(0, 8), *[(0, 0)] * (array.ndim - 1)]), batch)
    wider = empty._replace(rows=jax.tree.map(lambda array: np.pad(array, [(0, 0), (0, 9)]), empty.rows))
    assert_near(updated(recipe, batch), updated(recipe, wider))


def test_only_what_a_recipe_learns_is_changed_and_its_target_follows():
    recipe = recipe_of("ilql")
    before, _ = start(recipe)
    assert set(before.learnt) == {"trunk", "v", "q"}
    assert set(before.target) == {"trunk", "q"}
    after, _ = updated(recipe, batch_of())
    assert after.step == 1
    for old, slow, fast in zip(*map(jax.tree.leaves, (before.target, after.target, {
        name: after.learnt[name] for name in after.target
    })), strict=True):  # fmt: skip
        np.testing.assert_allclose(slow, 0.995 * old + 0.005 * fast, atol=1e-6)


@pytest.mark.differs(
    "ilql", there="with `hard_update_every`, targets also follow slowly", here="they stay constant between two copies"
)
def test_targets_may_be_copied_at_some_steps_instead():
    settings, target = OfflineSettings(hard_update_every=3), {"q": jnp.zeros(2)}
    learnt = {"q": jnp.ones(2), "v": jnp.ones(1)}
    copied = [float(updates.follow(target, learnt, jnp.int32(step), settings)["q"][0]) for step in range(1, 7)]
    assert copied == [0, 0, 1, 0, 0, 1]


def test_what_is_not_finite_changes_nothing():
    batch = batch_of()
    batch.rows.reward[batch.rows.closes] = np.nan
    before, _ = start(recipe_of("ilql"))
    after, metrics = updated(recipe_of("ilql"), batch)
    assert not metrics["finite"]
    assert_same(before.learnt, after.learnt, atol=0)
    assert after.step == 1


@pytest.mark.parametrize("name", ["ilql+joint", "chai"])
def test_measuring_many_batches_equals_measuring_one(name):
    recipe, whole = recipe_of(name), batch_of(7)
    state, given = start(recipe)
    mesh = make_mesh(1)
    objective = objective_of(LANGUAGE, recipe, SETTINGS)
    measure = map_update(make_measure(objective), mesh, batch_axis=0, num_constants=2)
    sums = replicate(objective.zeros(), mesh)
    for start_row in range(0, 8, 2):
        part = jax.tree.map(lambda array, at=start_row: array[at : at + 2], whole)
        sums = measure(sums, state, given, part)
    measured = means_of({key: float(value) for key, value in sums.items()}, objective)
    _, metrics = updated(recipe, whole)
    for key, value in measured.items():
        np.testing.assert_allclose(value, metrics[key], rtol=1e-4, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("during", ["training", "validation"])
@pytest.mark.parametrize(("forgotten", "said"), [
    ("its weight", "the term 'mine' is computed, but has no weight (motif_jax.offline.update.terms_of"),
    ("to compute it", "the term 'mine' has a weight, but is not computed (motif_jax.offline.update.terms_of"),
])  # fmt: skip
def test_a_term_that_is_only_computed_or_only_weighted_is_refused(monkeypatch, forgotten, said, during):
    recipe, (value_terms, terms_of) = recipe_of("ilql"), (updates.value_terms, updates.terms_of)

    def with_mine(*given):
        sums, advantage = value_terms(*given)
        return sums | {"mine": sums["q"]}, advantage

    if forgotten == "its weight":
        monkeypatch.setattr(updates, "value_terms", with_mine)
    else:
        monkeypatch.setattr(updates, "terms_of", lambda *given: terms_of(*given) | {"mine": updates.Term(1.0)})
    objective, (state, given) = objective_of(PLAIN, recipe, SETTINGS), start(recipe)
    if during == "training":
        update, before = updates.make_update(objective, SETTINGS), (state, given)
    else:
        update, before = make_measure(objective), (objective.zeros(), state, given)
    program = map_update(update, make_mesh(1), batch_axis=0, num_constants=len(before) - 1)
    with pytest.raises(ValueError, match=re.escape(said)):
        program(*before, batch_of())


@pytest.mark.slow
@on_devices(8)
def test_eight_devices_learn_what_one_does():
    """Rows have unequal numbers of decisions: a mean of means would differ."""
    for name in ("ilql+joint", "utterance_ilql", "chai", "decision_transformer"):  # one of each kind
        recipe, batch = recipe_of(name), batch_of(3, packed=True)
        assert_near(updated(recipe, batch, steps=2), updated(recipe, batch, devices=8, steps=2))


OTHER = {  # for each value of the losses another one than in SETTINGS
    "discount": 0.5, "expectile": 0.6, "double_q": False, "polyak": 0.3, "hard_update_every": 4, "v_weight": 0.5,
    "q_weight": 0.5, "conservative_weight": 0.7, "conservative_temperature": 0.4, "margin_weight": 0.5, "margin": 0.6,
    "policy_weight": 0.5, "advantage_beta": 0.2, "advantage_weight": 7.0, "advantage_sign": True, "value_min": -0.2,
    "value_max": 0.1, "reward_scale": 3.0, "mean_over_all_tokens": True,
}  # fmt: skip
PLAIN = ModelFunctions(  # so that programs are traced quickly
    lambda params, tokens, segments, added: params["embedding"][tokens] + (0 if added is None else added),
    lambda params, hidden: hidden @ params["embedding"].T, WIDTH, VOCABULARY,
)  # fmt: skip


def written_out(recipe, settings):
    state, given = start(recipe, settings)

    def program(state, given, batch):
        weights = Weights(state.learnt, state.target, given)
        sums = sum_terms(PLAIN, recipe, settings, weights, batch) | count(recipe, batch)
        return sums, updates.follow(state.target, state.learnt, state.step, settings) if state.target else ()

    return str(jax.make_jaxpr(program)(state, given, batch_of(num_rows=1))), objective_of(PLAIN, recipe, settings).terms


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_every_value_changes_the_update_or_is_listed_as_unused(name):
    assert OTHER.keys() == table_of(ValueTerms).keys() | {"mean_over_all_tokens"}
    recipe, before = recipe_of(name), written_out(recipe_of(name), SETTINGS)
    unused = {*unused_values(recipe, SimpleNamespace(**asdict(SETTINGS), games=0))} & {*OTHER}
    assert written_out(recipe, replace(SETTINGS, **{one: OTHER[one] for one in unused})) == before
    for one in OTHER.keys() - unused:
        assert written_out(recipe, replace(SETTINGS, **{one: OTHER[one]})) != before, one
