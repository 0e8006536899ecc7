"""Policies of a toy game, made once for all tests that play them: a trained one, and two that know nothing."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from conftest import get_config, made_once, run_stage

from motif_jax.captions import encode
from motif_jax.devices.checkpoints import Checkpoints
from motif_jax.envs.toy import STAIRS, WALL
from motif_jax.policies import model as policy_setup
from motif_jax.rewards.preference import make_reward_model, make_value
from motif_jax.rewards.statistics import summarise_values
from motif_jax.stages import train_policy
from motif_jax.stages.evaluate import play

TASK = "faulty_games:StairsInTheEast"
TRAINING = {
    "network": "small", "num_workers": 0, "synchronous": True, "warmup_steps": 0, "tensorboard": False,
    "games_per_worker": 32, "rollout_length": 8, "batch_size": 256, "num_epochs": 2, "clip_ratio": 0.2,
    "learning_rate": 4e-3, "discount": 0.95, "milestone_every_steps": 0,
    "train_for_env_steps": 7680, "save_every_steps": 3840, "extrinsic_coefficient": 1.0, "reward_scale": 1.0,
    "intrinsic_coefficient": 1e-9,  # the learnt reward stands in the checkpoints, but teaches nothing
}  # fmt: skip


class Policies(NamedTuple):
    good: Path  # with a learnt reward; checkpoints 3840 and 7680
    weak: Path  # fresh parameters, no reward; checkpoints 64 and 128
    worth_of_stairs: float  # normalised learnt reward; nothing else is worth anything


def policies() -> Policies:
    """Makes them, if no other test has; half a minute at most, nearly all of it compilation."""
    home = made_once("toy-policies", make_policies)
    return Policies(home / "good", home / "weak", float((home / "worth").read_text()))


def make_policies(home: Path) -> None:
    (home / "worth").write_text(repr(write_reward(home / "good/reward/checkpoints")))
    config = get_config(argument=TASK)
    config.policy.update(TRAINING)
    run_stage(train_policy, config, home / "good")
    options = {"network": "small", "num_actions": 23, "dtype": "float32"}
    checkpoints = Checkpoints(home / "weak/policy/checkpoints")
    for seed, step in enumerate((64, 128)):
        params = policy_setup.make_policy_model(options, seed).params
        metadata = {"model": options, "config": json.loads(config.to_json()), "sources": {}}
        checkpoints.save(step, {"learner": {"params": params}}, metadata)
    checkpoints.close()


def write_reward(directory: Path) -> float:
    """A checkpoint of an untrained reward that happens to like the stairs best; what it gives for them."""
    options = {"message": "lt_cnn_small", "blstats": False, "crop": False, "glyphs": False}
    captions = np.array([encode(text.decode()) for text in (STAIRS, WALL, b"")], np.uint8)
    counts = np.ones(3, np.int32)
    for seed in range(100):
        apply, params = make_reward_model(options, seed)
        raw = np.asarray(make_value(apply)(params, captions, np.arange(3), {}))
        if raw.argmax() == 0:
            break
    statistics = summarise_values(raw, counts)
    metadata = {"epoch": 1, "model": options, "statistics": statistics._asdict()}
    checkpoints = Checkpoints(directory)
    checkpoints.save(1, {"train": {"params": params}, "captions": captions, "counts": counts}, metadata, 0.0)
    checkpoints.close()
    return float(statistics.normalise(raw)[0])


@contextlib.contextmanager
def stopped_after(episodes: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """An evaluation inside is stopped after so many episodes, each of which is saved; gives their numbers."""
    ended: list[int] = []

    def as_row(info, *more, real=play.as_row):
        if len(ended) == episodes:
            raise KeyboardInterrupt
        ended.append(info.episode)
        return real(info, *more)

    with monkeypatch.context() as patched:
        patched.setattr(play, "as_row", as_row)
        patched.setattr(play, "KEEP_EVERY_S", -1.0)
        with pytest.raises(KeyboardInterrupt):
            yield ended
