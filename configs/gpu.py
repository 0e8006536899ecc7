"""One machine with a GPU, measured in less than nine minutes.

    bash launch/gpu.sh

This runs `python -m motif_jax.launch --config=configs/gpu.py --workdir=runs/gpu-DATE --stage=benchmark`: results of the
GPU are compared with the CPU's, the GPU is measured and traced, and an agent of the published size is trained in
`train/` of the workdir. The sizes are for one recent GPU and 16 cores. `configs/gpu.py:score,rehearsal` has tiny sizes,
for a machine without a GPU: some minutes on two cores.
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.system.machine import usable_cores


def get_config(argument: str = "score") -> ConfigDict:
    """`motif.py`, for a machine with a GPU and little time; the argument is a task, and optionally `rehearsal`."""
    task, *switches = argument.split(",")
    rehearsal = "rehearsal" in switches
    others = [switch for switch in switches if switch != "rehearsal"]
    config = runpy.run_path(str(Path(__file__).with_name("motif.py")))["get_config"](",".join([task, *others]))
    config.stages = ("benchmark",)
    config.benchmark.parts = ("numerics", "reward", "policy", "profile", "train")
    config.benchmark.networks = ("reference",)  # the published network
    config.benchmark.seconds = 1.0  # short, to fit into nine minutes
    config.benchmark.repeats = 2
    config.benchmark.train_seconds = 200.0  # the largest part of it
    config.benchmark.limit_s = 510.0  # 8.5 minutes, which leaves half a minute to start and end
    # a reward to train with, as in the quickstart
    config.collect.num_pairs = 50_000
    config.collect.keep_empty = 0.2
    config.reward.learning_rate = 5e-4
    config.reward.num_epochs = 6
    # large calls of the policy, and batches that keep a GPU busy; the learning rate is the published one
    config.policy.dtype = "bfloat16"  # faster on GPUs
    config.policy.num_workers = max(usable_cores() - 1, 1)  # one core for the process that acts and learns
    config.policy.games_per_worker = 128
    config.policy.batch_size = 16_384
    config.policy.log_every_s = 5.0  # more rows in a short run
    if rehearsal:  # tiny sizes, only to run every part
        config.benchmark.seconds = 0.1
        config.benchmark.repeats = 1
        config.benchmark.train_seconds = 30.0
        config.collect.num_pairs = 1000
        config.reward.num_epochs = 1
        config.policy.num_workers = min(usable_cores(), 2)
        config.policy.games_per_worker = 8
        config.policy.rollout_length = 8
        config.policy.batch_size = 64
        config.policy.warmup_steps = 50
        config.policy.log_every_s = 1.0
    return config
