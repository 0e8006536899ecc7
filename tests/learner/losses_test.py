import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.devices.mesh import DATA, total
from motif_jax.learner import losses
from motif_jax.learner.settings import RATIO_RANGE, Settings, find_algorithm

RNG = np.random.default_rng(0)
VALID = RNG.random((9, 8)) < 0.8
LOGITS, OLD_LOGITS = (RNG.normal(size=(9, 8, 5)).astype(np.float32) * 1.5 for _ in range(2))
ACTION = RNG.integers(5, size=(9, 8))
ADVANTAGES, VALUES, OLD_VALUES, TARGETS = RNG.normal(size=(4, 9, 8)).astype(np.float32)


def on_devices(function, *arrays, devices: int = 1):
    cut = [jnp.stack(jnp.split(jnp.asarray(array), devices, axis=1)) for array in arrays]
    return jax.jit(jax.vmap(function, axis_name=DATA))(*cut)


def mean(function, *arrays, valid=VALID, devices: int = 1) -> float:
    def run(valid, *arrays):
        return total(function(*arrays, weight=losses.weigh(valid)))

    return float(on_devices(run, valid, *arrays, devices=devices)[0])


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def log_of_action(logits: np.ndarray) -> np.ndarray:
    return np.take_along_axis(log_softmax(logits), ACTION[..., None], -1)[..., 0]


def appo(ratio, advantages, weight):
    return losses.surrogate(ratio, advantages, weight, 1 / 1.1, 1.1)


@pytest.mark.quick
def test_the_ratio_is_clamped_and_its_gradient_is_finite():
    logs = jnp.array([0.0, np.log(2), -9.0, 9.0, 500.0, -500.0])
    np.testing.assert_allclose(losses.clamped_ratio(logs, RATIO_RANGE), [1, 2, 0.05, 20, 20, 0.05], rtol=1e-6)
    gradient = jax.grad(lambda logs: losses.clamped_ratio(logs, RATIO_RANGE).sum())(logs)
    np.testing.assert_allclose(gradient, [1, 2, 0, 0, 0, 0], rtol=1e-6)


@pytest.mark.quick
@pytest.mark.parametrize("algorithm", ["appo", "impala"])
def test_the_loss_is_the_sum_of_the_terms_that_the_metrics_show(algorithm):
    log_all, log_old = log_softmax(LOGITS), log_softmax(OLD_LOGITS)
    log_pi, log_mu = log_of_action(LOGITS), log_of_action(OLD_LOGITS)
    arrays = (log_all, log_old, log_pi, log_mu, np.exp(log_pi - log_mu), VALUES, OLD_VALUES, TARGETS, ADVANTAGES)

    def run(valid, log_all, log_old, *arrays):
        head = losses.choice_head(log_all, log_old, ACTION)
        inputs = losses.LossInputs((head,), *arrays, weight=losses.weigh(valid))
        policy_loss = find_algorithm(algorithm).policy_loss(inputs, Settings())
        return losses.sum_of_terms(policy_loss, inputs, Settings(), 0.1), losses.distances(inputs, 1 / 1.1, 1.1)

    (loss, means), distances = on_devices(run, VALID, *arrays)
    terms = means.keys() - {"loss", "entropy"}
    assert float(loss[0]) == float(means["loss"][0]) == pytest.approx(sum(float(means[name][0]) for name in terms))
    assert all(name.endswith("_loss") for name in terms), f"a term's name in sum_of_terms ends in _loss: {terms}"
    assert not means.keys() & distances.keys()


@pytest.mark.quick
def test_normalisation_does_not_amplify_small_deviations():
    result = on_devices(lambda *given: losses.normalise(*given, 0.1), 0.01 * ADVANTAGES, VALID)[0]
    np.testing.assert_allclose(result, 0.1 * (ADVANTAGES - ADVANTAGES[VALID].mean()), atol=1e-6)
    equal = on_devices(losses.normalise, np.full_like(ADVANTAGES, 3), VALID)
    assert not equal.any()


@pytest.mark.quick
@pytest.mark.parametrize("devices", [1, 4])
def test_metrics_are_of_the_valid_samples_of_all_devices(devices):
    ratio = np.exp(ADVANTAGES / 2)
    targets = VALUES + 0.3 * TARGETS
    measured = on_devices(losses.spread, ratio, VALUES, targets, ADVANTAGES, VALID, devices=devices)
    v, g, a = VALUES[VALID], targets[VALID], ADVANTAGES[VALID]
    expected = {
        "ratio_min": ratio[VALID].min(),
        "ratio_max": ratio[VALID].max(),
        "value_mean": v.mean(),
        "target_mean": g.mean(),
        "explained_variance": 1 - (g - v).var() / g.var(),
        "advantage_mean": a.mean(),
        "advantage_std": a.std(ddof=1),
        "advantage_min": a.min(),
        "advantage_max": a.max(),
    }
    assert measured.keys() == expected.keys()
    for name, array in measured.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("devices", [1, 4])
def test_the_loss_of_appo_and_its_gradients_are_those_of_pytorch(devices):
    torch = pytest.importorskip("torch", reason="needs PyTorch's build for CPUs: bash launch/test.sh installs it")

    def ours(logits, values, old_logits, action, advantages, old_values, targets, valid):
        def loss_of(logits, values):
            weight, log_all = losses.weigh(valid), jax.nn.log_softmax(logits)
            now, before = (jnp.take_along_axis(jax.nn.log_softmax(array), action[..., None], -1)[..., 0]
                           for array in (logits, old_logits))  # fmt: skip
            policy = appo(losses.clamped_ratio(now - before, RATIO_RANGE), losses.normalise(advantages, valid), weight)
            error = losses.value_loss(values, old_values, targets, weight, 1.0)
            entropy = losses.part_of_mean(losses.choice_head(log_all, log_all, action).entropy, weight)
            return policy + 0.5 * error - 0.003 * entropy

        loss, gradients = jax.value_and_grad(loss_of, (0, 1))(logits, values)
        return total(loss), gradients

    arrays = (LOGITS, VALUES, OLD_LOGITS, ACTION, ADVANTAGES, OLD_VALUES, TARGETS, VALID)
    loss, gradients = on_devices(ours, *arrays, devices=devices)

    logits, values, old_logits, action, advantages, old_values, targets, valid = map(torch.from_numpy, arrays)
    logits.requires_grad_()
    values = values.clone().requires_grad_()
    pi, mu = (torch.distributions.Categorical(logits=array) for array in (logits, old_logits))
    ratio = (pi.log_prob(action) - mu.log_prob(action)).exp().clamp(0.05, 20)
    advantages = (advantages - advantages[valid].mean()) / max(1e-3, advantages[valid].std())
    policy = -torch.min(ratio * advantages, ratio.clamp(1 / 1.1, 1.1) * advantages)[valid].mean()
    near = old_values + (values - old_values).clamp(-1, 1)
    error = torch.max((values - targets) ** 2, (near - targets) ** 2)[valid].mean()
    theirs = policy + 0.5 * error - 0.003 * pi.entropy()[valid].mean()
    theirs.backward()
    assert float(loss[0]) == pytest.approx(theirs.item(), rel=1e-5)
    for ours_, tensor in zip(gradients, (logits, values), strict=True):
        np.testing.assert_allclose(np.concatenate(ours_, axis=1), tensor.grad.numpy(), atol=1e-6)


@pytest.mark.quick
def test_advantages_of_nearly_equal_returns_stay_small():
    ids, counted = jnp.array([0, 0, 0, 1, 1, 2, 3, 3]), jnp.array([True] * 6 + [True, False])
    values = jnp.array([2.0, 2.0, 2.0, 1.0, 1.0 + 1e-6, 7.0, 5.0, 9.0])
    advantages = np.asarray(losses.relative(values, counted, ids, 4, True))
    assert advantages[:3].tolist() == [0, 0, 0]
    assert 0 < np.abs(advantages[3:5]).max() < 0.01  # not 0.7, as (1e-6 / 2) / deviation would be
    assert advantages[5:].tolist() == [0, 0, 0]
