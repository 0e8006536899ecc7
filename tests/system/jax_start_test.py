"""The devices that JAX makes of a CPU."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT

COUNT = "from motif_jax.system.jax_start import divide_cpu; divide_cpu(3); import jax; print(jax.device_count())"


@pytest.mark.quick
@pytest.mark.parametrize(("said", "devices"), [
    ({}, 3), ({"JAX_NUM_CPU_DEVICES": "2"}, 2), ({"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}, 4),
])  # fmt: skip
def test_a_cpu_is_divided_unless_the_environment_says_how(said, devices):
    kept = {name: value for name, value in os.environ.items() if name not in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")}
    environment = kept | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)} | said
    found = subprocess.run([sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, check=True)
    assert int(found.stdout) == devices
