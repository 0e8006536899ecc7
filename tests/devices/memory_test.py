"""An update that does not fit into a device's memory is refused with one sentence before it runs."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from motif_jax.devices.mesh import check_fits, describe_memory, needed_bytes
from motif_jax.structs import UserError
from motif_jax.system.errors import in_words

pytestmark = pytest.mark.quick


def product(a):
    """Needs a result of 4 MiB, and about as much on the way."""
    return jnp.sin(a @ a) @ a


def device(limit: int, used: int = 0):
    return SimpleNamespace(memory_stats=lambda: {"bytes_limit": limit, "bytes_in_use": used}, device_kind="NVIDIA X")


MATRIX = jnp.zeros((1024, 1024))


def test_a_program_needs_its_results_and_what_lies_between():
    needed = needed_bytes(jax.jit(product).lower(MATRIX).compile())
    assert 4 * 2**20 <= needed <= 24 * 2**20
    assert needed_bytes(jax.jit(jnp.sin).lower(MATRIX).compile()) == 4 * 2**20
    assert (
        needed_bytes(jax.jit(jnp.sin, donate_argnums=0).lower(MATRIX).compile()) == 0
    )  # it takes the argument's place


def test_what_does_not_fit_is_refused_with_what_it_needs():
    needed = needed_bytes(jax.jit(product).lower(MATRIX).compile())
    check_fits(jax.jit(product), (MATRIX,), device(2**30), "it", "--config.x.y")
    check_fits(jax.jit(product), (MATRIX,), device(2**30, 2**30 - needed), "it", "--config.x.y")
    with pytest.raises(UserError) as caught:
        check_fits(jax.jit(product), (MATRIX,), device(2**30, 2**30 - 2**21), "an update", "--config.policy.batch_size")
    assert str(caught.value) == (
        f"an update needs {in_words(needed)} of the memory of NVIDIA X, but only 2 MiB of 1 GiB are free "
        "(--config.policy.batch_size)"
    )


def test_a_cpu_is_not_asked():
    assert describe_memory(jax.devices("cpu")[0]) is None
    check_fits(None, (), jax.devices("cpu")[0], "it", "")


@pytest.mark.parametrize(("count", "words"), [(100, "100 bytes"), (3 * 2**29, "1.5 GiB"), (2**40, "1 TiB")])
def test_words(count, words):
    assert in_words(count) == words
