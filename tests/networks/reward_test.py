import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from policy_test import assert_orthogonal, count

from motif_jax.networks.reward import MessageClassifier, MessageEncoder, RewardModel, SmallMessageEncoder


def messages(count: int, longest: int = 256, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.integers(32, 127, (count, 256)).astype(np.uint8)
    lengths = np.linspace(0, longest, count).astype(int)
    return np.where(np.arange(256) < lengths[:, None], rows, 0).astype(np.uint8)


def test_the_default_has_the_published_number_of_parameters():
    assert count(RewardModel(rngs=nnx.Rngs(0))) == 306_945
    head = 128 * 256 + 256 + 256 * 512 + 512 + 512 + 1
    classifier = 128 * 512 + 512 + 512 * 512 + 512 + 512 * 2 + 2
    assert count(MessageClassifier(rngs=nnx.Rngs(0))) == 306_945 - head + classifier == 471_554


@pytest.mark.parametrize(("encoder", "longest", "width"), [
    (MessageEncoder, 0, 1), (MessageEncoder, 79, 80), (MessageEncoder, 250, 253), (SmallMessageEncoder, 16, 16),
])  # fmt: skip
def test_skipping_the_zeros_changes_nothing(encoder, longest, width):
    model = encoder(rngs=nnx.Rngs(1))
    text = messages(9, longest)

    @nnx.jit(static_argnums=1)
    def value(model, width):
        return nnx.value_and_grad(lambda model: (model(jnp.asarray(text[:, :width])) ** 2).sum())(model)

    (whole, whole_gradient), (short, gradient) = value(model, 256), value(model, width)
    np.testing.assert_allclose(short, whole, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), gradient, whole_gradient)


def test_initialisation_is_the_published_one():
    model = RewardModel(rngs=nnx.Rngs(0))
    assert_orthogonal(model.first)
    for conv in model.message.convolutions:
        width, inputs, _ = conv.kernel[...].shape
        bound = 1 / (inputs * width) ** 0.5
        for array in (conv.kernel[...], conv.bias[...]):
            assert 0.9 * bound < np.abs(array).max() <= bound
    embedding = np.asarray(model.message.embedding[...])
    assert not embedding[0].any()
    assert 0.9 < embedding[1:].std() < 1.1


@pytest.mark.quick
@pytest.mark.differs(
    "oni",
    there="the classifier has PyTorch's default initialisation",
    here="its linear layers begin with orthogonal weights and zero biases, like those of Motif's reward",
)
def test_the_classifier_begins_with_orthogonal_layers():
    model = MessageClassifier("lt_cnn_small", rngs=nnx.Rngs(0))
    for layer in (model.first, model.second, model.head):
        assert_orthogonal(layer)


def test_the_crop_is_what_is_around_the_hero():
    model = RewardModel("none", crop=True, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(0)
    glyphs = rng.integers(1, 5000, (1, 21, 79))
    place = np.zeros((1, 27), np.int64)

    def value(glyphs, column, row):
        place[0, :2] = column, row
        return float(model({"glyphs": jnp.asarray(glyphs), "blstats": jnp.asarray(place)})[0])

    here = value(glyphs, 30, 10)
    moved = np.roll(glyphs, (2, 5), (1, 2))  # all of the window moves, and the hero with it
    assert value(moved, 35, 12) == pytest.approx(here, abs=1e-6)
    outside = glyphs.copy()
    outside[0, :, 50:] = 7
    assert value(outside, 30, 10) == pytest.approx(here, abs=1e-6)
    inside = glyphs.copy()
    inside[0, 10, 31] = 7
    assert value(inside, 30, 10) != pytest.approx(here, abs=1e-6)
    assert np.isfinite(value(glyphs, 0, 0))
    assert np.isfinite(value(glyphs, 78, 20))
