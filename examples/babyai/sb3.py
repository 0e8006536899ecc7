"""GoToLocal with RecurrentPPO of Stable-Baselines3, for comparison: an equal network and equal hyperparameters.

    pip install sb3-contrib minigrid
    python examples/babyai/sb3.py 1 3600

The arguments are the seed and the limit in seconds; training ends before it when 97 % of the last 500 episodes succeed.
It prints their success at each update, and at the end that of 200 new episodes, with sampled actions as in training.

The network is `film` of motif_jax with its sizes: learnt vectors of the cells, which the mission scales and shifts, and
recurrent units. RecurrentPPO has an LSTM for the policy and one for the value, by default; they are so large that the
network has as many parameters.
"""

import contextlib
import math
import sys
import time
import zlib
from collections import deque
from functools import lru_cache

import gymnasium
import minigrid  # noqa: F401  registers the game
import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

GAME, GAMES, ROLLOUT = "BabyAI-GoToLocal-v0", 64, 40
TRIGRAMS, CHANNELS, KEPT, VALUES, MEMORY = 512, 32, 16, 11, 128
LAST, WANTED = 500, 0.97  # episodes over which success is averaged, and where training ends


@lru_cache(maxsize=10_000)
def trigrams(mission: str) -> np.ndarray:
    """How often each sequence of three characters occurs, in 512 buckets."""
    counts = np.zeros(TRIGRAMS, np.float32)
    for place in range(len(mission)):
        counts[zlib.crc32(mission[place : place + 3].encode()) % TRIGRAMS] += 1
    return counts


class Game(gymnasium.Wrapper):
    """The picture of cells, and the mission as counts."""

    def __init__(self) -> None:
        """Plays GAME."""
        super().__init__(gymnasium.make(GAME))
        cells = gymnasium.spaces.Box(0, VALUES - 1, (7, 7, 3), np.float32)
        text = gymnasium.spaces.Box(0, 320, (TRIGRAMS,), np.float32)
        self.observation_space = gymnasium.spaces.Dict({"cells": cells, "text": text})

    def reset(self, **values):
        """Begins an episode."""
        with contextlib.redirect_stdout(None):  # MiniGrid prints each room that it rejects
            seen, info = self.env.reset(**values)
        return self._convert(seen), info

    def step(self, action):
        """One action."""
        seen, reward, ended, cut, info = self.env.step(action)
        return self._convert(seen), reward, ended, cut, info | {"success": reward > 0}

    def _convert(self, seen):
        return {"cells": seen["image"].astype(np.float32), "text": trigrams(seen["mission"])}


class Film(BaseFeaturesExtractor):
    """The encoder."""

    def __init__(self, space: gymnasium.spaces.Dict) -> None:
        """128 features of the cells and 64 of the text."""
        super().__init__(space, 128 + 64)
        self.vectors = nn.Embedding(3 * VALUES, CHANNELS)
        self.cell, self.kept = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, KEPT)
        self.modulation = nn.Linear(64, 2 * CHANNELS)
        self.cells = nn.Sequential(nn.Linear(49 * KEPT, 128), nn.ELU())
        self.text = nn.Sequential(nn.Linear(TRIGRAMS, 128), nn.ELU(), nn.Linear(128, 64), nn.ELU())
        self.register_buffer("offsets", torch.arange(3) * VALUES)

    def forward(self, seen):
        """-> [B, 192]"""
        text = self.text(seen["text"])
        scale, shift = self.modulation(text)[:, None, None].chunk(2, -1)
        cells = self.vectors(seen["cells"].long() + self.offsets).sum(3)
        cells = nn.functional.elu(self.cell(cells) * (1 + scale) + shift)
        return torch.cat([self.cells(nn.functional.elu(self.kept(cells)).flatten(1)), text], 1)


class Watch(BaseCallback):
    """Prints the success of the last episodes at each update; ends the training at WANTED, or in time."""

    def __init__(self, seconds: float) -> None:
        """Starts the clock at the first step."""
        super().__init__()
        self._seconds, self._last, self._began = seconds, deque(maxlen=LAST), time.perf_counter()

    def _on_step(self) -> bool:
        ended = zip(self.locals["dones"], self.locals["infos"], strict=True)
        self._last.extend(info["success"] for done, info in ended if done)
        reached = len(self._last) == LAST and np.mean(self._last) >= WANTED
        return time.perf_counter() - self._began < self._seconds and not reached

    def _on_rollout_end(self) -> None:
        passed = time.perf_counter() - self._began
        success = float(np.mean(self._last)) if self._last else 0.0
        print(f"{passed:.0f} s, {self.num_timesteps:,} steps, success {success:.3f}", flush=True)


def equal_size(inputs: int) -> int:
    """The size of two LSTMs that have as many parameters as a GRU of size MEMORY."""
    weights = 3 * MEMORY * (inputs + MEMORY) / 2
    return round((math.sqrt(inputs**2 + weights) - inputs) / 2)  # 4 n (inputs + n) = weights


def evaluate(agent: RecurrentPPO, seed: int, episodes: int = 200) -> float:
    """The success of new episodes, whose first seed is `seed`."""
    game, successes = Game(), 0
    for number in range(episodes):
        seen, _ = game.reset(seed=seed + number)
        memory, first, over = None, np.ones(1, bool), False
        while not over:
            action, memory = agent.predict(seen, memory, first)
            seen, reward, ended, cut, _ = game.step(int(action))
            first, over = np.zeros(1, bool), ended or cut
        successes += reward > 0
    return successes / episodes


def main(seed: int, seconds: float) -> None:
    """Trains and evaluates one seed."""
    torch.set_num_threads(1)
    games = DummyVecEnv([Game] * GAMES)
    games.seed(seed * 1_000)
    network = {
        "features_extractor_class": Film, "net_arch": [], "lstm_hidden_size": equal_size(128 + 64),
    }  # fmt: skip
    agent = RecurrentPPO(
        "MultiInputLstmPolicy", games, n_steps=ROLLOUT, batch_size=GAMES * ROLLOUT // 8, n_epochs=2,
        learning_rate=1e-3, gamma=0.99, gae_lambda=0.95, ent_coef=0.01, policy_kwargs=network, seed=seed, device="cpu",
    )  # fmt: skip
    print(f"{sum(parameter.numel() for parameter in agent.policy.parameters()):,} parameters", flush=True)
    began = time.perf_counter()
    agent.learn(10**9, Watch(seconds))
    passed = time.perf_counter() - began
    success = evaluate(agent, 10**6)
    print(f"seed {seed}: {passed:.0f} s, {agent.num_timesteps:,} steps, success of new episodes {success:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
