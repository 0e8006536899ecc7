"""Trains sample-factory's APPO on NetHack, and prints the steps per second from end to end.

With V-trace, version 2.1.1 fails after the first update, when it sums up the advantages, so it learns by GAE, its
default.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from functools import partial
from typing import Any

from nethack_game import NetHack
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

WARMUP_BATCHES = 3


class Clock(AlgoObserver):
    """Measures from the end of the warm-up on, and ends the training after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self.rate = seconds, 0.0

    def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
        now, steps = time.perf_counter(), runner.total_env_steps_since_resume
        if training_iteration_since_resume <= WARMUP_BATCHES:
            self._start = now, steps
        elif now - self._start[0] >= self._seconds and not self.rate:
            self.rate = (steps - self._start[1]) / (now - self._start[0])
            runner.cfg.train_for_env_steps = 0


def make_game(task: dict, *_: Any, **__: Any) -> NetHack:
    """For sample-factory, whose processes call it."""
    return NetHack(task["keys"], task["longest"])


def main(task: dict, folder: str) -> None:
    """Trains; files go to `folder`."""
    register_env("nethack", partial(make_game, task))
    values = {
        "algo": "APPO", "env": "nethack", "experiment": "peer", "train_dir": folder, "device": "cpu",
        "num_workers": task["workers"], "num_envs_per_worker": task["games"] // task["workers"],
        "worker_num_splits": 2, "rollout": task["rollout"], "recurrence": task["rollout"],
        "batch_size": task["batch"], "use_rnn": True, "rnn_type": "gru", "rnn_size": task["memory"],
        "nonlinearity": "elu", "normalize_input": False, "with_vtrace": False, "train_for_env_steps": 10**9,
    }  # fmt: skip
    words = [f"--{name}={value}" for name, value in values.items()]
    words += ["--encoder_mlp_layers", *map(str, task["widths"])]
    _, runner = make_runner(parse_full_cfg(parse_sf_args(words)[0], words))
    clock = Clock(task["seconds"])
    runner.register_observer(clock)
    runner.init()
    runner.run()
    print(json.dumps({"rate": clock.rate}), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(json.loads(sys.argv[1]), made)
