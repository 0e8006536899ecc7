import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_same_bits, refusal
from flax import nnx
from language_test import PROMPTS, as_prompts, options

from motif_jax.envs.nethack.world import FRAME_WORLDS
from motif_jax.envs.world import is_text
from motif_jax.envs.worlds import make_world
from motif_jax.names import WORLDS
from motif_jax.networks.images import Convolution
from motif_jax.networks.kinds import BEHAVIOUR, FIXED, check_reads, kind_of, to_record
from motif_jax.networks.policy import FilmEncoder, PolicyNetwork
from motif_jax.policies.model import PolicyPlayer, make_policy_model
from motif_jax.structs import ArraySpec, UserError

ACTIONS = 5
SPECS = {
    "message": ArraySpec((256,), "uint8"),
    "mission": ArraySpec((40,), "uint8", "text"),
    "speed": ArraySpec((3, 4), "float32", "vector"),
    "gold": ArraySpec((), "int64"),
    "direction": ArraySpec((), "int64", "category", 4),
    "hands": ArraySpec((2,), "int32", "category", 7),
    "view": ArraySpec((7, 7, 3), "uint8", "grid", 11),
    "board": ArraySpec((19, 30), "int16", "grid", 300),
    "crop": ArraySpec((2, 12, 12), "uint8", "planes", 32),
    "camera": ArraySpec((84, 84, 4), "uint8"),
    "icon": ArraySpec((5, 9), "uint8", "image"),
}


def observations(*shape: int, specs=SPECS, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    made = {}
    for name, spec in specs.items():
        high = spec.categories or 200
        made[name] = rng.integers(0, high, (*shape, *spec.shape)).astype(spec.dtype)
    return made


def test_every_observation_matters_to_the_action():
    """What a part reads reaches the logits, and nothing that it should tell apart is the same to it."""
    net = PolicyNetwork("general", ACTIONS, specs=SPECS, for_cpu=False, rngs=nnx.Rngs(0))
    step = nnx.jit(lambda net, *args: net.step(*args))
    seen, first, core = observations(8), np.ones(8, bool), jnp.zeros((8, net.core_size))
    for name in SPECS:
        one = {other: array if other == name else array[[0] * 8] for other, array in seen.items()}
        logits, _, _ = step(net, one, first, core)
        for row in range(1, 8):
            same = (seen[name][0] == seen[name][row]).all()
            assert bool(np.allclose(logits[0], logits[row], rtol=1e-6, atol=1e-7)) == same, name


GENERAL = {"network": "general", "num_actions": ACTIONS, "dtype": "float32", "reads": to_record(SPECS)}
PLAN = {"names": ["gold", "stairs"], "lengths": [1, 4], "coefficients": [0, 1], "sum_to_one": True}
NETWORKS = {
    "general": GENERAL, "mixtures": GENERAL | {"options": PLAN},
    "small": {"network": "small", "num_actions": 23, "dtype": "bfloat16"},
    "llama": options("llama"), "t5": options("t5"),
}  # fmt: skip


def check_packed(spec):
    """A network plays the same with one array each way, as on a GPU, and with several, as on a CPU.

    policy_acting_test.py has all actions.
    """
    model = make_policy_model(spec, 3)
    apart, together = (PolicyPlayer(model, num_games=6, group_size=2, seed=0) for _ in range(2))
    apart._apart = True
    specs = SPECS if "reads" in spec else make_world({}).specs
    for call, games in enumerate(([0, 1, 2, 3], [4, 5, 0], [2, 3, 0, 1])):  # one size, with padding
        seen = as_prompts([PROMPTS[(call + game) % len(PROMPTS)] for game in games])
        if "prompt" not in model.reads:
            seen = observations(len(games), specs={one: specs[one] for one in model.reads}, seed=call)
        first = np.array(games) % 3 == call
        one, other = (
            player({key: array.copy() for key, array in seen.items()}, first.copy(), np.array(games))
            for player in (apart, together)
        )
        assert_same_bits(one, other)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_plays_the_same_with_one_array_each_way(name):
    check_packed(NETWORKS[name])


@pytest.mark.quick
@pytest.mark.parametrize("spec", [
    ArraySpec((2, 12, 12), "uint8"),  # which axis is what?
    ArraySpec((24, 80), "uint8"),  # a grid or an image?
    ArraySpec((9, 9), "int32", "grid"),  # of how many values?
    ArraySpec((3,), "<U8"), ArraySpec((9, 9), "int32", "grid", 10**9), ArraySpec((), "int64", "category"),
])  # fmt: skip
def test_an_observation_that_no_encoder_reads_is_refused_with_its_name(spec):
    parts = "no encoder reads the observation 'radar'", str(spec.shape), spec.dtype, "--config.policy.network"
    refusal(lambda: kind_of("radar", spec), *parts)


@pytest.mark.quick
def test_observations_that_a_network_reads_must_exist():
    check_reads("general", SPECS, ("gold", "view"), "mine")
    with pytest.raises(UserError, match=r"'small' reads 'crop', which 'mine' does"):
        check_reads("small", {"message": SPECS["message"]}, ("message",), "mine")
    with pytest.raises(UserError, match="read 'behaviour', which does not exist, .* or has a name that is taken"):
        check_reads("general", {BEHAVIOUR: SPECS["gold"]}, (BEHAVIOUR,), "mine")


@pytest.mark.quick
@pytest.mark.parametrize("name", [name for name in WORLDS if not is_text(make_world({"world": name}).action)])
def test_every_network_reads_the_worlds_that_come_with_the_program(name):
    world = make_world({"world": name})
    fixed = [network for network, preset in FIXED.items() if {*preset.reads} <= world.specs.keys()]
    assert bool(fixed) == (name in FRAME_WORLDS)
    for network in (*fixed, "general"):
        check_reads(network, world.specs, world.reads, name)


def test_a_text_modulates_the_features_of_a_grid():
    specs = {"image": ArraySpec((3, 4, 2), "uint8", "grid", 5), "mission": ArraySpec((16,), "uint8", "text")}
    encoder, seen = FilmEncoder(specs, for_cpu=False, dtype=jnp.float32, rngs=nnx.Rngs(0)), observations(2, specs=specs)
    texts = (np.frombuffer(text.ljust(16, b"\0"), np.uint8) for text in (b"go to the ball", b"open the door"))
    one, other = (encoder(seen | {"mission": np.stack([text, text])}) for text in texts)
    assert one.shape == (2, encoder.features) == (2, 128 + 64)
    assert abs(one[:, :128] - other[:, :128]).max() > 1e-3


@pytest.mark.parametrize(
    ("rows", "columns", "side", "stride"), [(7, 7, 3, 1), (5, 9, 4, 2), (37, 40, 8, 4), (1, 1, 3, 1)]
)
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
