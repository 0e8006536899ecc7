"""Reward sources whose cost is measured: an untrained reward, and a program of ten terms on random steps of NetHack."""

from __future__ import annotations

import numpy as np
from ml_collections import ConfigDict

from benchmarks.reward import OPTIONS
from benchmarks.rows import rate_of
from motif_jax.captions import WIDTH, encode
from motif_jax.envs.worlds import make_world
from motif_jax.rewards.learnt_source import LearntSource, Reward, make_mix
from motif_jax.rewards.preference import make_reward_model
from motif_jax.rewards.registry import LEARNT, LEARNT_KIND
from motif_jax.rewards.source import Arrays, RewardSources, Weighted
from motif_jax.rewards.statistics import LEVELS, RewardStatistics

TERMS = (
    "gained(gold)", "20 * record(depth)", "-0.01 * still()", '5 * once(says("you kill"))', '0.5 * says("you see")',
    "0.1 * gained(experience)", "-1 * rose(health < 5)", "0.001 * min(energy, 10)", "once(distance(crop, 62) < 2)",
    "2 * once(count(glyphs == 2396) > 3)",
)  # fmt: skip
CAPTIONS = ("", "You see here a gold piece.", "You kill the newt!", "This door is locked.")


def untrained_sources(config: ConfigDict) -> RewardSources:
    """A reward with the default network, untrained, as the only source of rewards beside the game."""
    _, params = make_reward_model(OPTIONS, 0)
    statistics = RewardStatistics(0.0, 1.0, {f"{level:.2f}": 0.0 for level in LEVELS})
    reward = Reward(OPTIONS, params, statistics, np.zeros((0, WIDTH), np.uint8), np.zeros(0, np.int32), {})
    section = config.policy.copy_and_resolve_references()
    section.intrinsic_form = "thresholded"  # an untrained reward has no best caption to pay shares of
    learnt = LearntSource(reward, make_mix(section, reward), False)
    return RewardSources([Weighted(LEARNT, LEARNT_KIND.path, section.intrinsic_coefficient, learnt)])


def run_program(config: ConfigDict, seconds: float) -> float:
    """Steps per second of the sum of TERMS, on batches of the policy's size."""
    from motif_jax.contrib.code_rewards.grammar import check
    from motif_jax.contrib.code_rewards.names import CAPTION, find_readable
    from motif_jax.contrib.code_rewards.running import Runner

    world = make_world({"task": "score"})
    program = check(" + ".join(TERMS), find_readable(world))
    steps, games = config.policy.rollout_length, config.policy.batch_size // config.policy.rollout_length
    rng, runner = np.random.default_rng(0), Runner(program)
    rollouts: Arrays = {"game": np.arange(games)[None], "action": np.zeros((steps, games), np.int32)}
    ended = rng.random((steps, games)) < 1 / 500
    rollouts |= {"reward": np.zeros((steps, games), np.float32), "first": np.pad(ended, ((1, 0), (0, 0)))}
    rollouts |= {"terminated": ended, "truncated": np.zeros_like(ended)}
    for name in program.observations:
        shape = (steps + (not name.startswith("event_")), games)
        rollouts[name] = rng.integers(0, 100, (*shape, *world.specs[name].shape)).astype(world.specs[name].dtype)
    rollouts[CAPTION] = np.array([encode(line) for line in CAPTIONS])[rng.integers(len(CAPTIONS), size=(steps, games))]

    def run() -> int:
        return runner.rewards(rollouts).size

    return rate_of(run, seconds)
