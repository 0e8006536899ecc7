"""Rewards of the published system: reads and writes its checkpoints, by mapping its state dict to our parameters.

Reading is safe: torch loads only arrays and plain containers, and refuses anything that would run code.
"""

from __future__ import annotations

import csv
import importlib.util
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.devices.parameters import check_parameters, leaves_by_path
from motif_jax.files import write_whole
from motif_jax.rewards.learnt_source import Reward
from motif_jax.rewards.statistics import IMPORT_FLAG, ImportedReward, RewardStatistics
from motif_jax.structs import UserError, legible
from motif_jax.system.foreign import check_regular, read_text

EMBEDDING = "encoder.char_lt.weight"
CONVOLUTIONS = ("encoder.conv1", *(f"encoder.conv2_6_fc.{index}" for index in (2, 5, 7, 9, 11)))
LAYERS = [(("message", "convolutions", str(at)), name) for at, name in enumerate(CONVOLUTIONS)] + [
    (("message", "linears", "0"), "encoder.conv2_6_fc.15"),
    (("first",), "encoder.fc.0"), (("second",), "encoder.fc.2"), (("head",), "reward_fn.1"),
]  # fmt: skip
TENSORS = {("message", "embedding"): EMBEDDING} | {  # ours: theirs; kernels have their axes in the opposite order
    (*path, ours): f"{name}.{theirs}"
    for path, name in LAYERS
    for ours, theirs in (("kernel", "weight"), ("bias", "bias"))
}
ACTIONS = 23
NETWORK = {"message": "lt_cnn", "blstats": False, "crop": False, "glyphs": False}
UNUSED = ("critic_linear.", "action_parameterization.")  # parts of their state dict that the reward does not use

ByPath = dict[tuple[str, ...], np.ndarray]  # our parameters


def torch_file(path: Path) -> TorchFile | None:
    """The checkpoint at `path`; None for other formats."""
    return TorchFile(path) if path.suffix in (".pth", ".pt") else None


class TorchFile:
    """A checkpoint of the published system; see `RewardFile` in rewards/statistics.py."""

    def __init__(self, path: Path):
        self._path = path

    def check(self) -> None:
        with legible(f"{str(self._path)!r} as a PyTorch checkpoint of a reward", IMPORT_FLAG):
            check_regular(self._path)
            with open(self._path, "rb") as opened:
                if opened.read(1) not in (b"P", b"\x80"):  # an archive, or a pickle of older versions
                    raise ValueError("it does not begin like one")
        if not (table := quantiles_beside(self._path)).is_file():
            raise UserError(f"there is no {str(table)!r}, which belongs to {str(self._path)!r} ({IMPORT_FLAG})")
        _require_torch()

    def read(self) -> ImportedReward:
        arrays, scale = read_checkpoint(self._path)
        epoch, quantiles, doubt = read_quantiles(self._path, int(scale["num_iter"]))
        statistics = RewardStatistics(scale["reward_mean"], scale["reward_var"], quantiles)
        return ImportedReward(arrays, NETWORK, epoch, statistics, doubt)


def to_torch(arrays: ByPath) -> dict[str, np.ndarray]:
    """Converts our parameters to a PyTorch state dict: their names, their order of axes."""
    state = {theirs: _turned(ours, arrays[ours]) for ours, theirs in TENSORS.items()}
    state[EMBEDDING] = state[EMBEDDING].copy()
    state[EMBEDDING][0] = 0
    return {name: np.ascontiguousarray(array) for name, array in state.items()}


def _turned(path: tuple[str, ...], array: np.ndarray) -> np.ndarray:
    return array.T if path[-1] == "kernel" else array


def read_checkpoint(file: Path) -> tuple[ByPath, dict[str, float]]:
    """Reads a `checkpoint_N.pth`: our parameters by path, and its `num_iter`, `reward_mean` and `reward_var`."""
    torch = _torch()
    try:
        check_regular(file)
        if zipfile.is_zipfile(file):  # the current format; PyTorch does not verify its checksums
            with zipfile.ZipFile(file) as archive:
                if sum(part.file_size for part in archive.infolist()) > file.stat().st_size or archive.testzip():
                    raise ValueError("its parts are damaged, or compressed, which PyTorch does not do")
        checkpoint = torch.load(file, map_location="cpu", weights_only=True)
        used = {name: tensor for name, tensor in checkpoint["model"].items() if not name.startswith(UNUSED)}
        state = {name: tensor.float().numpy() for name, tensor in used.items()}
        metadata = {name: float(checkpoint[name]) for name in ("num_iter", "reward_mean", "reward_var")}
        if others := state.keys() ^ set(TENSORS.values()):
            raise ValueError(f"a reward that reads only messages has other arrays, see {min(others)!r}")
        arrays = {ours: _turned(ours, state[theirs]) for ours, theirs in TENSORS.items()}
        if metadata["reward_var"] <= 0 or metadata["num_iter"] < 0:
            raise ValueError("its variance or its number is negative")
    except Exception as error:  # torch raises all kinds of exceptions for files of another format
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"cannot read {str(file)!r} as a PyTorch checkpoint of a reward: {reason} ({IMPORT_FLAG})"
        ) from error
    check_parameters({"model": state, **metadata}, file, IMPORT_FLAG)
    return arrays, metadata


def read_quantiles(checkpoint: Path, num_iter: int) -> tuple[int, dict[str, float], str]:
    """The row of `../reward_metrics/train_norm_quantiles.csv` that belongs to a checkpoint.

    The published system writes a checkpoint and a row per epoch. If there are as many checkpoints as rows, the rank of
    a checkpoint is the number of its row. Otherwise this takes the last row, as the published system always does.
    `num_iter`: optimiser steps before that checkpoint, equal to N of `checkpoint_N.pth`. Returns the epoch, 0 before
    any training; its quantiles by level; why this may be another epoch's row, "" if certain.
    """
    table = quantiles_beside(checkpoint)
    with legible(f"the quantiles in {str(table)!r}", IMPORT_FLAG, csv.Error):
        levels, *rows = [[float(cell) for cell in row] for row in csv.reader(read_text(table).splitlines()) if row]
        runs = [number for number, row in enumerate(rows, 1) if row == levels]  # each begins with a line of levels
        rows = rows[runs[-1] :] if runs else rows
        if not rows or any(len(row) != len(levels) or not np.isfinite(row).all() for row in rows):
            raise ValueError(f"after the levels there must be lines of {len(levels)} finite numbers")
    matches = (re.fullmatch(r"checkpoint_(\d+)\.pth", file.name) for file in checkpoint.parent.iterdir())
    steps = sorted(int(match[1]) for match in matches if match)
    epoch, doubt = len(rows) - 1, ""
    if len(steps) == len(rows) and checkpoint.name == f"checkpoint_{num_iter}.pth":
        epoch = steps.index(num_iter)
    elif any(row != rows[-1] for row in rows):
        doubt = (
            f"{str(table)!r} has {len(rows)} rows, but the directory of {str(checkpoint)!r} (step {num_iter:,}) has "
            f"{len(steps)} checkpoints, so its row is unknown: the last one is used, as in the published system"
        )
    return epoch, {f"{level:.2f}": value for level, value in zip(levels, rows[epoch], strict=True)}, doubt


def quantiles_beside(checkpoint: Path) -> Path:
    """The file with the quantiles of the rewards of all checkpoints of a run."""
    return checkpoint.absolute().parent.parent / "reward_metrics" / "train_norm_quantiles.csv"


def _torch() -> Any:
    _require_torch()
    import torch

    return torch


def _require_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        said = "PyTorch checkpoints need PyTorch: pip install torch (the CPU build is enough)"
        raise UserError(f"{said} ({IMPORT_FLAG})")


def export_reward(reward: Reward, directory: str | Path) -> Path:
    """Writes a reward that reads only messages in the published system's format; returns the checkpoint's path.

    Beside the checkpoint is the CSV of quantiles that the published agent reads.
    """
    if reward.options["message"] != "lt_cnn" or not reward.reads_only_messages:
        raise UserError("only a reward of the default network, which reads messages alone, has a place in that format")
    torch, epoch, statistics = _torch(), reward.facts["epoch"], reward.statistics
    file = Path(directory) / "checkpoint_p0" / f"checkpoint_{epoch}.pth"
    table = Path(directory) / "reward_metrics" / "train_norm_quantiles.csv"
    for path in (file, table):
        if path.exists():
            raise UserError(f"{str(path)!r} is there already: choose another directory")
        path.parent.mkdir(parents=True, exist_ok=True)
    state = to_torch({key: np.asarray(array) for key, array in leaves_by_path(reward.params).items()})
    for name, outputs in {"critic_linear": 1, "action_parameterization.distribution_linear": ACTIONS}.items():
        state |= {f"{name}.weight": np.zeros((outputs, 512), np.float32), f"{name}.bias": np.zeros(outputs, np.float32)}
    moments = {"reward_mean": statistics.zero, "reward_var": statistics.variance}  # that format has no anchor
    checkpoint = {"num_iter": epoch, "optimizer": {}, "model": {name: torch.tensor(x) for name, x in state.items()}}
    checkpoint |= {name: torch.tensor(value) for name, value in moments.items()}
    write_whole(file, lambda out: torch.save(checkpoint, out))
    levels, values = zip(*sorted(statistics.quantiles.items()), strict=True)
    row = ",".join(repr(float(value)) for value in values)
    lines = [",".join(levels), *[row] * (epoch + 1)]  # one row per epoch; the published system reads the last one
    write_whole(table, ("\n".join(lines) + "\n").encode())
    return file
