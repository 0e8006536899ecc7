"""A small workdir in which nothing is wrong, and all the ways in which its files are damaged."""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings
from pathlib import Path

import numpy as np
from conftest import get_config, made_once

from motif_jax import experiment
from motif_jax.structs import UserError

ORBAX = "ignore::pytest.PytestUnraisableExceptionWarning"  # of its own event loop, when it cannot read an array

SMALL = {
    "env.max_episode_steps": 50, "collect.num_pairs": 120, "collect.num_workers": 0, "reward.num_epochs": 2,
    "reward.batch_size": 32, "reward.message": "lt_cnn_small", "reward.learning_rate": 1e-3,
    "policy.num_workers": 0, "policy.synchronous": True, "policy.games_per_worker": 8, "policy.groups": 2,
    "policy.rollout_length": 8, "policy.batch_size": 64, "policy.warmup_steps": 0, "policy.tensorboard": False,
    "policy.intrinsic_coefficient": 0.0, "policy.extrinsic_coefficient": 1.0,
    "policy.train_for_env_steps": 192, "policy.save_every_steps": 64,
}  # fmt: skip


def run(workdir: Path, stage: str, **values) -> None:
    """One stage in this process, with all that `launch` does around it."""
    config = get_config("quickstart.py", "toy")
    config.update_from_flattened_dict(SMALL | {name.replace("__", "."): value for name, value in values.items()})
    experiment.run(config, workdir, [stage])


def make_whole() -> Path:
    """The workdir, made once for all."""

    def make(workdir: Path) -> None:
        for stage in ("collect", "annotate", "train_reward", "train_policy"):
            run(workdir, stage)

    return made_once("whole", make)


# ---- the damages


class Evil:
    """Leaves a trace when it is loaded."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self):
        return (os.mkdir, (str(self.trace),))


def truncate(file: Path, trace: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip_one(file: Path, trace: Path, where: float = 0.75) -> None:
    data = bytearray(file.read_bytes())
    data[int(len(data) * where)] ^= 1
    file.write_bytes(data)


def poison(file: Path, trace: Path) -> None:
    file.write_bytes(pickle.dumps(Evil(trace)))


def poison_array(file: Path, trace: Path) -> None:
    with open(file, "wb") as out:
        np.save(out, np.array([Evil(trace)], object), allow_pickle=True)


def archive(file: Path, trace: Path) -> None:
    with open(file, "wb") as out:
        np.savez(out, a=np.zeros(3))


def not_text(file: Path, trace: Path) -> None:
    file.write_bytes(b"\xff\xfe" * 40)


def refused_or(workdir: Path, name: str, damage, tmp_path: Path, attempt, same=lambda: True) -> None:
    """Damages a file; then `attempt` must raise one sentence that names it, or come to the `same` as without."""
    damage(workdir / name, tmp_path / "trace")
    refusal = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            attempt()
        except UserError as error:
            refusal = str(error)
    assert "\n" not in refusal
    assert len(refusal) < 700
    assert refusal or same(), f"{name} was damaged, and nobody said so"
    assert not (tmp_path / "trace").exists(), "a stranger's code was executed"


def digest(*files: Path) -> list[str]:
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


def files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())
