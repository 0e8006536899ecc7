"""Chooses the sizes of a training run from the machine: cores, GPUs and their memory.

    python -m motif_jax.system.sizing    prints the GPUs or `cpu`, for scripts of launch/, and why

Figures are in docs/results/speed.md: on an H200, a worker process plays 5,400 to 6,500 steps/s in a whole training, and
an update of 16,384 steps by the published network in bfloat16 takes 2.1 GiB.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from motif_jax.console import print_line
from motif_jax.structs import UserError
from motif_jax.system.machine import usable_cores
from motif_jax.system.startup import CPU_DEVICES

STEPS_PER_WORKER = 6500  # steps/s of a worker process in a training on a GPU
UPDATES_PER_S = 10  # more often, updates are in the way of acting
KNOWN = "MOTIF_JAX_GPU"  # a variable with what this program printed, so that JAX is asked once
SMALLEST, LARGEST = 2048, 16_384  # batches; the smallest has a rollout of each of 64 games
MIB_PER_STEP = 0.15  # of an update by the published network in bfloat16
MIB_BESIDE = 1024  # programs, parameters, the policy's calls, the reward's network
PROBE = """
import json, jax
devices = jax.devices()
limit = min((device.memory_stats() or {}).get("bytes_limit", 0) for device in devices)
print(json.dumps([devices[0].platform, len(devices), limit // 2**20]))
"""


class Gpu(NamedTuple):
    """The GPUs that JAX uses."""

    name: str
    number: int
    mib: int  # of memory that a program may use on each

    def describe(self) -> str:
        return f"{f'{self.number} x ' * (self.number > 1)}{self.name}, {self.mib:,} MiB of memory"


class Devices(NamedTuple):
    """The devices that JAX uses."""

    platform: str  # cpu, gpu, tpu
    number: int  # of this host
    mib: int  # of memory that a program may use on each; 0: not known


class Sizes(NamedTuple):
    """Values of the section `policy`."""

    network: str
    dtype: str
    num_workers: int
    games_per_worker: int
    batch_size: int
    wait_for_learner: bool

    def describe(self) -> str:
        games = max(self.num_workers, 1) * self.games_per_worker
        return f"network {self.network} in {self.dtype}, {games:,} games, batches of {self.batch_size:,} steps"


def size_run(cores: int, gpu: Gpu | None) -> Sizes:
    """The sizes for a number of cores, with or without GPUs.

    On a GPU, one core is left to the process that acts and learns. The batch is what the games play in a tenth of a
    second, within the GPU's memory, and grows with the number of GPUs.
    """
    if gpu is None:
        # 64 games, which wait for the learner: with 128 games that do not wait, samples were ten updates old instead of
        # one or two, and training was not faster.
        return Sizes("small", "float32", cores, max(64 >> (cores - 1).bit_length(), 2), 1024, True)
    workers = max(cores - 1, 1)
    most = min(workers * STEPS_PER_WORKER / UPDATES_PER_S, (gpu.mib - MIB_BESIDE) / MIB_PER_STEP, LARGEST)
    batch = max(1 << (max(int(most), 1).bit_length() - 1), SMALLEST)
    return Sizes("reference", "bfloat16", workers, 128, batch * gpu.number, False)


def list_gpus() -> list[str]:
    """The GPUs that programs may use, as CUDA_VISIBLE_DEVICES names them; none if JAX is to use the CPU."""
    if not shutil.which("nvidia-smi") or os.environ.get("JAX_PLATFORMS") == "cpu":
        return []
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]  # CUDA numbers them in another order
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    return [] if listed.returncode else [line.strip() for line in listed.stdout.splitlines()]


def ask_jax() -> Devices | None:
    """The devices, as another process asks JAX, which takes seconds; None if JAX does not start."""
    return _ask_jax_once(os.environ.get(CPU_DEVICES))


@functools.cache
def _ask_jax_once(cpu_devices: str | None) -> Devices | None:
    """`cpu_devices`: what the process is told in its environment; runs of a sweep may differ in it."""
    try:
        return _ask_jax()
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return None


def _ask_jax() -> Devices:
    asked = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=300, check=True)
    return Devices(*json.loads(asked.stdout.splitlines()[-1]))


def check_devices(number: int, fsdp: int, tensor: int, devices: Devices, section: str, elsewhere: int = 0) -> None:
    """Raises UserError if a mesh of `number` devices, 0: all, cannot have these sizes. `elsewhere`: on other hosts."""
    there = devices.number + elsewhere
    if number > there or (0 < number < there and elsewhere):
        said = f"{there} of kind {devices.platform}" + ", and several hosts use all of theirs" * bool(elsewhere)
        raise UserError(f"{number} devices were asked for, but there are {said} ({section}.num_devices)")
    here = devices.number if elsewhere else number or there
    if here % (fsdp * tensor):
        raise UserError(
            f"fsdp {fsdp} times tensor {tensor} must divide the number of devices of this host, {here} "
            f"({section}.fsdp, .tensor, .num_devices)"
        )


@functools.cache
def find_gpu() -> tuple[Gpu | None, str]:
    """The GPUs that training can use, as another process asks JAX; else None, and why, "" if the machine has none."""
    if not shutil.which("nvidia-smi") or os.environ.get("JAX_PLATFORMS") == "cpu":
        return None, ""
    if known := os.environ.get(KNOWN):
        return None if known == "cpu" else Gpu(*json.loads(known)), ""
    command = ["nvidia-smi", "--query-gpu=name,memory.free", "--format=csv,noheader,nounits"]
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        command.append(f"--id={visible}")
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode or not listed.stdout.strip():
        return None, ""
    rows = [line.rpartition(", ") for line in listed.stdout.splitlines()]
    name, free = rows[0][0], [int(mib) for *_, mib in rows if mib.isdigit()]  # some machines do not tell
    try:
        platform, number, limit = _ask_jax()
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:  # after five minutes, or with a reason
        words = str(error.stderr or "").strip() or str(error)
        return None, f"JAX cannot use the GPU ({name}): {words.splitlines()[-1][:200]}"
    if platform != "gpu":
        return None, f"JAX sees no GPU, though there is one ({name}): its CUDA libraries are missing or do not start"
    return Gpu(name, number, min([limit, *free])), ""


def sizes_of(policy: Mapping[str, Any]) -> Sizes:
    """The sizes in a section `policy`."""
    return Sizes(*(policy[name] for name in Sizes._fields))


def describe_machine() -> str:
    """What `size_this_machine` goes by, for people."""
    gpu, reason = find_gpu()
    return f"{usable_cores()} cores, {gpu.describe() if gpu else reason or 'no GPU'}"


def size_this_machine() -> Sizes:
    """The sizes for a GPU of this machine; on a machine without one those for its cores and a GPU of 16 GiB."""
    return size_run(usable_cores(), find_gpu()[0] or Gpu("unknown", 1, 16_384))


def main() -> None:
    """Prints the GPUs or `cpu`; the reason goes to standard error."""
    os.environ.pop(KNOWN, None)
    gpu, reason = find_gpu()
    if gpu or reason:
        words = f"{describe_machine()}: " if gpu else f"{reason}. The sizes of a CPU: "
        print_line(words + size_run(usable_cores(), gpu).describe(), sys.stderr)
    print_line(json.dumps(gpu) if gpu else "cpu")


if __name__ == "__main__":
    main()
