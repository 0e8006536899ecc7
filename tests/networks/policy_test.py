import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from motif_jax.envs.nethack.observations import OBSERVATIONS, scale_blstats
from motif_jax.networks import images
from motif_jax.networks.images import convolve, convolve_looked_up
from motif_jax.networks.kinds import BEHAVIOUR, FIXED
from motif_jax.networks.policy import Core, PolicyNetwork

ACTIONS = 23


def observations(*shape: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    crop = np.stack([rng.integers(0, 256, (*shape, 12, 12)), rng.integers(0, 32, (*shape, 12, 12))], -3)
    text = rng.integers(32, 127, (*shape, 256)) * (np.arange(256) < rng.integers(0, 80, (*shape, 1)))
    made = {"crop": crop, "blstats": rng.integers(-3, 3000, (*shape, 27)), "message": text}
    return {key: array.astype(OBSERVATIONS[key].dtype) for key, array in made.items()}


def count(model) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))


@functools.cache
def published() -> PolicyNetwork:
    return PolicyNetwork("reference", ACTIONS, rngs=nnx.Rngs(0))


def step(network: PolicyNetwork, *args):
    return nnx.jit(lambda network, *args: network.step(*args))(network, *args)


@pytest.mark.parametrize("frames", [5, 70])  # one piece; three, of which the last is filled up
def test_looking_up_in_pieces_gives_the_plain_convolutions_and_their_gradients(frames):
    encoder = published().encoder.image
    weights = [(a[...], b[...]) for a, b in zip(encoder.kernels, encoder.biases, strict=True)]
    crop = observations(frames)["crop"]
    target = np.random.default_rng(0).normal(size=(frames, 3, 3, 128)).astype(np.float32)

    def value(way):
        def loss(weights):
            out = way(weights, crop)
            return (out * target).sum(), out

        return jax.jit(jax.value_and_grad(loss, has_aux=True))(weights)

    ((_, plain), plain_gradient), ((_, quick), gradient) = value(convolve), value(convolve_looked_up)
    np.testing.assert_allclose(quick, plain, atol=3e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=3e-6 * np.abs(b).max()), gradient, plain_gradient)


def test_equal_to_pytorchs_layers():
    torch = pytest.importorskip("torch", reason="needs PyTorch's build for CPUs: bash launch/test.sh installs it")
    from torch_policy import TorchPolicy

    torch.manual_seed(0)
    theirs, ours = TorchPolicy(ACTIONS), PolicyNetwork("reference", ACTIONS, rngs=nnx.Rngs(1))
    assert sum(p.numel() for p in theirs.parameters()) == count(ours)
    copy_weights(ours, theirs)
    core = np.random.default_rng(0).normal(size=(4, 512)).astype(np.float32)
    for t in range(3):
        seen, first = observations(4, seed=t), np.array([t == 1, False, True, False])
        inputs = np.asarray(images.render(seen["crop"])), scale_blstats(seen["blstats"]), seen["message"], first, core
        with torch.no_grad():
            expected = theirs(*(torch.from_numpy(np.array(x)) for x in inputs))
        results = step(ours, seen, first, core)
        for result, x in zip(results, expected, strict=True):
            assert result.dtype == jnp.float32
            np.testing.assert_allclose(result, x.numpy(), atol=1e-5)
        core = np.asarray(results[2])


def copy_weights(ours: PolicyNetwork, theirs) -> None:
    def copy(layer, kernel, bias):
        matrix = layer.weight.detach().numpy()
        kernel[...] = matrix.transpose(2, 3, 1, 0) if matrix.ndim == 4 else matrix.T
        bias[...] = layer.bias.detach().numpy()

    encoder, image = ours.encoder, ours.encoder.image
    for place, kernel, bias in zip((0, 2, 4), image.kernels, image.biases, strict=True):
        copy(theirs.image[place], kernel, bias)
    copy(theirs.image[7], image.kernel, image.bias)
    for part in ("vector", "message"):
        for place, linear in zip((0, 2), getattr(encoder, part).linears, strict=True):
            copy(getattr(theirs, part)[place], linear.kernel, linear.bias)
    for head in ("value", "policy"):
        copy(getattr(theirs, head), getattr(ours, head).kernel, getattr(ours, head).bias)
    ours.core.input_kernel[...] = theirs.core.weight_ih.detach().numpy().T
    ours.core.kernel[...] = theirs.core.weight_hh.detach().numpy().T
    ours.core.input_bias[...] = theirs.core.bias_ih.detach().numpy()
    ours.core.bias[...] = theirs.core.bias_hh.detach().numpy()


def test_sizes_and_initialisation_are_the_published_ones():
    network = published()
    assert (count(network), network.core_size, network.reads) == (2_795_640, 512, ("crop", "blstats", "message"))
    image, core = network.encoder.image, network.core
    uniform = {192: [image.kernels[0], image.biases[0]], 512: [image.kernels[1], image.biases[1]]}
    uniform |= {576: [image.kernels[2], image.biases[2]], 1152: [image.kernel, image.bias]}
    uniform[512] += [core.input_kernel, core.input_bias, core.kernel, core.bias]
    for inputs, arrays in uniform.items():
        for array in arrays:
            assert 0.9 * inputs**-0.5 < np.abs(array[...]).max() <= inputs**-0.5
    encoder = network.encoder
    for linear in (*encoder.vector.linears, *encoder.message.linears, network.value, network.policy):
        assert_orthogonal(linear)


def assert_orthogonal(linear: nnx.Linear) -> None:
    kernel = np.asarray(linear.kernel[...])
    kernel = kernel.T if kernel.shape[0] > kernel.shape[1] else kernel
    np.testing.assert_allclose(kernel @ kernel.T, np.eye(len(kernel)), atol=1e-5)
    assert not np.asarray(linear.bias[...]).any()


@pytest.mark.parametrize("preset", FIXED)
def test_unrolling_is_step_after_step(preset):
    network = published() if preset == "reference" else PolicyNetwork(preset, ACTIONS, rngs=nnx.Rngs(0))
    rng, seen = np.random.default_rng(0), observations(5, 3)
    first = rng.random((5, 3)) < 0.3
    core = rng.normal(size=(3, network.core_size)).astype(np.float32)
    logits, values = nnx.jit(lambda network, *args: network.unroll(*args))(network, seen, first, core)
    assert logits.shape == (5, 3, ACTIONS)
    assert first.any()
    for t in range(5):
        one, value, core = step(network, {key: array[t] for key, array in seen.items()}, first[t], core)
        np.testing.assert_allclose(logits[t], one, atol=2e-6)
        np.testing.assert_allclose(values[t], value, atol=2e-6)


def test_gradients_of_the_memory_are_those_of_step_after_step():
    module = Core(6, 4, dtype=jnp.float32, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(0)
    features, core = rng.normal(size=(7, 3, 6)).astype(np.float32), rng.normal(size=(3, 4)).astype(np.float32)
    first, target = rng.random((7, 3)) < 0.3, rng.normal(size=(7, 3, 4)).astype(np.float32)

    def at_once(module, features, core):
        return (module.unroll(module.project(features), first, core) * target).sum()

    def one_by_one(module, features, core):
        total = 0.0
        for t in range(7):
            core = module.step(module.project(features[t]), first[t], core)
            total += (core * target[t]).sum()
        return total

    results = [nnx.jit(nnx.grad(way, argnums=(0, 1, 2)))(module, features, core) for way in (at_once, one_by_one)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), *results)


@pytest.mark.parametrize(("preset", "for_cpu"), [("reference", True), ("reference", False), ("small", True)])
def test_bfloat16_is_close_and_results_stay_float32(preset, for_cpu):
    # Measured: logits of up to 0.6 differ by 0.003 in the reference, of up to 1.0 by 0.004 in the small network.
    network = PolicyNetwork(preset, ACTIONS, dtype=jnp.bfloat16, for_cpu=for_cpu, rngs=nnx.Rngs(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(network, nnx.Param))} == {jnp.dtype("float32")}
    exact = published() if preset == "reference" else PolicyNetwork(preset, ACTIONS, rngs=nnx.Rngs(0))
    inputs = observations(64), np.zeros(64, bool), np.zeros((64, network.core_size), np.float32)
    for rounded, result in zip(step(network, *inputs), step(exact, *inputs), strict=True):
        assert rounded.dtype == jnp.float32
        np.testing.assert_allclose(rounded, result, atol=0.015)


def test_prepared_tables_change_nothing():
    for preset in ("reference", "small"):
        network = PolicyNetwork(preset, ACTIONS, for_cpu=True, rngs=nnx.Rngs(0))
        prepared = nnx.jit(lambda network: network.prepare())(network)
        assert prepared is not None
        inputs = observations(40), np.zeros(40, bool), np.zeros((40, network.core_size), np.float32)
        for plain, faster in zip(step(network, *inputs), step(network, *inputs, prepared), strict=True):
            np.testing.assert_allclose(plain, faster, atol=1e-6)


@pytest.mark.parametrize("behaviours", [0, 3])
@pytest.mark.parametrize("frames", [1, 70])
def test_looking_up_blocks_of_cells_gives_their_layer_and_its_gradients(frames, behaviours):
    small = PolicyNetwork("small", ACTIONS, behaviours=behaviours, for_cpu=True, rngs=nnx.Rngs(0)).encoder
    small.block.linears[0].bias[...] = np.linspace(-1, 1, small.BLOCK)
    seen, results = observations(frames), []
    if behaviours:
        seen[BEHAVIOUR] = np.random.default_rng(1).random((frames, behaviours), np.float32)
    for for_cpu in (True, False):
        small.for_cpu = for_cpu
        results.append(nnx.jit(nnx.value_and_grad(lambda encoder: (encoder(seen) ** 2).sum()))(small))
    (value, gradient), (plain, plain_gradient) = results
    np.testing.assert_allclose(value, plain, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-3), gradient, plain_gradient)
