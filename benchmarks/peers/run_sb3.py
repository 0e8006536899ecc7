"""Trains Stable-Baselines3's recurrent PPO on NetHack, and prints the steps per second from end to end."""

from __future__ import annotations

import json
import math
import sys
import time
from functools import partial
from typing import Any

from nethack_game import NetHack
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn


class Layers(BaseFeaturesExtractor):
    """Linear layers, each with ELU."""

    def __init__(self, space: Any, widths: list[int]) -> None:
        super().__init__(space, widths[-1])
        pairs = zip([space.shape[0], *widths], widths, strict=False)
        self.layers = nn.Sequential(*(layer for pair in pairs for layer in (nn.Linear(*pair), nn.ELU())))

    def forward(self, x: Any) -> Any:
        """[B, 27] -> [B, widths[-1]]"""
        return self.layers(x)


class Clock(BaseCallback):
    """Measures whole rounds, of a rollout and its update, after the first one; ends the training after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds, self._rounds, self.rate = seconds, 0, 0.0

    def _on_rollout_start(self) -> None:
        now = time.perf_counter()
        if self._rounds == 1:
            self._start = now, self.num_timesteps
        elif self._rounds > 1 and now - self._start[0] >= self._seconds:
            self.rate = (self.num_timesteps - self._start[1]) / (now - self._start[0])
        self._rounds += 1

    def _on_step(self) -> bool:
        return not self.rate


def equal_size(inputs: int, memory: int) -> int:
    """The size of an LSTM with as many parameters as a GRU of size `memory`: the recurrent PPO has no GRU."""
    weights = 3 * memory * (inputs + memory)
    return round((math.sqrt(inputs**2 + weights) - inputs) / 2)  # 4 n (inputs + n) = weights


def main(task: dict) -> None:
    """Trains."""
    widths = task["widths"]
    network = {
        "features_extractor_class": Layers, "features_extractor_kwargs": {"widths": widths}, "net_arch": [],
        "lstm_hidden_size": equal_size(widths[-1], task["memory"]), "shared_lstm": True, "enable_critic_lstm": False,
    }  # fmt: skip
    games = DummyVecEnv([partial(NetHack, task["keys"], task["longest"])] * task["games"])
    agent = RecurrentPPO(
        "MlpLstmPolicy", games, n_steps=task["rollout"], batch_size=task["batch"] // task["minibatches"],
        n_epochs=task["epochs"], policy_kwargs=network, device="cpu",
    )  # fmt: skip
    clock = Clock(task["seconds"])
    agent.learn(10**9, clock)
    print(json.dumps({"rate": clock.rate}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
