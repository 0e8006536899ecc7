"""Any bytes are an array or one sentence."""

import random
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from motif_jax.system.arrays import read_array

SETTINGS = settings(
    derandomize=True, deadline=None, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip


def damage(rng: random.Random, file: Path, truncated: bool) -> None:
    """Flips some bits, most of them in the head, or cuts the file off."""
    data = bytearray(file.read_bytes())
    if truncated:
        file.write_bytes(data[: rng.randrange(len(data))])
        return
    for _ in range(rng.randint(1, 3)):
        data[rng.randrange(min(len(data), 130) if rng.random() < 0.7 else len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


@SETTINGS
@given(
    st.sampled_from([np.int8, np.float32, np.uint8]),
    st.integers(0, 2**32),
    st.booleans(),
    st.booleans(),
)
def test_an_array_is_an_array_or_a_value_error(dtype, seed, truncated, mapped):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "x.npy")
        np.save(file, np.arange(40).astype(dtype))
        size = file.stat().st_size
        damage(random.Random(seed), file, truncated)
        told = ""
        try:
            assert isinstance(read_array(file, mapped), np.ndarray)
        except ValueError as error:
            told = str(error)
        assert len(told.splitlines()) <= 1
        assert file.stat().st_size <= size
