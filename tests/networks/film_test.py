import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from motif_jax.networks.images import Convolution
from motif_jax.networks.policy import FilmEncoder
from motif_jax.structs import ArraySpec

SPECS = {"image": ArraySpec((3, 4, 2), "uint8", "grid", 5), "mission": ArraySpec((16,), "uint8", "text")}

SHAPES = [(7, 7, 3, 1), (5, 9, 4, 2), (37, 40, 8, 4), (1, 1, 3, 1)]


def seen(*leading, text=b"go to the ball"):
    rng = np.random.default_rng(0)
    row = np.frombuffer(text.ljust(16, b"\0"), np.uint8)
    image = rng.integers(0, 5, (*leading, 3, 4, 2)).astype(np.uint8)
    return {"image": image, "mission": np.broadcast_to(row, (*leading, 16))}


def test_a_text_modulates_the_features_of_a_grid():
    encoder = FilmEncoder(SPECS, for_cpu=False, dtype=jnp.float32, rngs=nnx.Rngs(0))
    one, other = (encoder(seen(2, text=text)) for text in (b"go to the ball", b"open the door"))
    assert one.shape == (2, encoder.features) == (2, 128 + 64)
    assert abs(one[:, :128] - other[:, :128]).max() > 1e-3


@pytest.mark.parametrize(("rows", "columns", "side", "stride"), SHAPES)
def test_the_product_on_cpus_is_the_convolution(rows, columns, side, stride):
    results = []
    for for_cpu in (False, True):
        layer = Convolution(3, 5, side, stride, for_cpu=for_cpu, rngs=nnx.Rngs(0))
        layer.bias = nnx.Param(jnp.arange(5.0))
        x = jax.random.normal(jax.random.key(1), (2, rows, columns, 3))
        gradients = nnx.grad(lambda layer, x: (layer(x) ** 2).sum(), argnums=(0, 1))(layer, x)
        results.append(jax.tree.leaves((layer(x), gradients)))
    for plain, product in zip(*results, strict=True):
        np.testing.assert_allclose(product, plain, rtol=1e-4, atol=1e-4)
