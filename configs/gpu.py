"""One machine with a GPU, measured in less than nine minutes.

    bash launch/gpu.sh

This runs `python -m benchmarks --config=configs/gpu.py --workdir=runs/gpu-DATE` with more flags: results of the GPU are
compared with the CPU's, the GPU is measured and traced, and an agent of the published size is trained in `train/` of
the workdir. Recipe and sizes are those of quickstart.py:score,gpu; other tasks of motif.py have the sizes alone.
`configs/gpu.py:score,rehearsal` has tiny sizes, for a machine without a GPU: some minutes on two cores.

Expected on an H200 with 16 cores: about 72,500 steps/s once the agent has learnt (docs/results/speed.md, measured with
the values of goals.py:progress).
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.system.machine import usable_cores
from motif_jax.system.sizing import Sizes


def make_config(file: str, argument: str) -> ConfigDict:
    """The config of another file."""
    return runpy.run_path(str(Path(__file__).with_name(file)))["get_config"](argument)


def get_config(argument: str = "score") -> ConfigDict:
    """`quickstart.py:score,gpu` with little time; the argument is a task, and optionally `rehearsal`."""
    task, *switches = argument.split(",")
    rehearsal = "rehearsal" in switches
    others = [switch for switch in switches if switch != "rehearsal"]
    config = make_config("quickstart.py", "score,gpu")
    if others or task != "score":
        recipe, config = config, make_config("motif.py", ",".join([task, *others]))
        for name in ("num_pairs", "keep_empty"):
            config.collect[name] = recipe.collect[name]
        for name in Sizes._fields:
            config.policy[name] = recipe.policy[name]
    config.policy.log_every_s = 5.0  # more rows in a short run
    if rehearsal:  # tiny sizes, only to run every part
        config.collect.num_pairs = 1000
        config.reward.num_epochs = 1
        config.policy.num_workers = min(usable_cores(), 2)
        config.policy.games_per_worker = 8
        config.policy.rollout_length = 8
        config.policy.batch_size = 64
        config.policy.warmup_steps = 50
        config.policy.intrinsic_form = "thresholded"  # such a reward may have no caption to pay shares of
        config.policy.log_every_s = 1.0
    return config
