"""A trained reward model for agents, evaluation and notebooks: texts in, values out.

reward = load_reward("runs/score")
reward(["You kill the newt!", "It's a wall."])      # raw and normalised values
reward.top(20)                                      # the captions of the data with the highest values
"""

from __future__ import annotations

import csv
import importlib.util
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.captions import WIDTH, decode, encode
from motif_jax.devices.checkpoints import find_saved, read_saved
from motif_jax.devices.parameters import check_parameters, leaves_by_path, rebuild
from motif_jax.devices.releases import usable
from motif_jax.files import write_whole
from motif_jax.networks.reward import observations_beside
from motif_jax.rewards.preference import in_chunks, make_reward_model, make_value
from motif_jax.rewards.statistics import RewardStatistics, read_statistics
from motif_jax.structs import UserError, legible
from motif_jax.system.foreign import check_regular, read_text

# Reads and writes reward checkpoints of the published system, by mapping its state dict to our parameters.
#
# Reading is safe: torch loads only arrays and plain containers, and refuses anything that would run code.

FLAG = "--config.reward.import_from"
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
UNUSED = ("critic_linear.", "action_parameterization.")  # parts of their state dict that the reward does not use

Arrays = dict[tuple[str, ...], np.ndarray]  # ours, by path


def to_torch(arrays: Mapping[tuple[str, ...], np.ndarray]) -> dict[str, np.ndarray]:
    """Converts our parameters to a PyTorch state dict: their names, their order of axes."""
    state = {theirs: _turned(ours, arrays[ours]) for ours, theirs in TENSORS.items()}
    state[EMBEDDING] = state[EMBEDDING].copy()
    state[EMBEDDING][0] = 0
    return {name: np.ascontiguousarray(array) for name, array in state.items()}


def _turned(path: tuple[str, ...], array: np.ndarray) -> np.ndarray:
    return array.T if path[-1] == "kernel" else array


def read_checkpoint(file: Path) -> tuple[Arrays, dict[str, float]]:
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
        raise UserError(f"cannot read {str(file)!r} as a PyTorch checkpoint of a reward: {reason} ({FLAG})") from error
    check_parameters({"model": state, **metadata}, file, FLAG)
    return arrays, metadata


def read_quantiles(checkpoint: Path, num_iter: int) -> tuple[int, dict[str, float], str]:
    """The row of `../reward_metrics/train_norm_quantiles.csv` that belongs to a checkpoint.

    The published system writes a checkpoint and a row per epoch. If there are as many checkpoints as rows, the rank of
    a checkpoint is the number of its row. Otherwise this takes the last row, as the published system always does.
    `num_iter`: optimiser steps before that checkpoint, equal to N of `checkpoint_N.pth`. Returns the epoch, 0 before
    any training; its quantiles by level; why this may be another epoch's row, "" if certain.
    """
    table = checkpoint.absolute().parent.parent / "reward_metrics" / "train_norm_quantiles.csv"
    with legible(f"the quantiles in {str(table)!r}", FLAG, csv.Error):
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


def _torch() -> Any:
    if importlib.util.find_spec("torch") is None:
        raise UserError(f"PyTorch checkpoints need PyTorch: pip install torch (the CPU build is enough) ({FLAG})")
    import torch

    return torch


CHUNK = 1024  # moments valued at a time


class Values(NamedTuple):
    """Rewards of B messages."""

    raw: np.ndarray  # [B] as the network gives them
    normalised: np.ndarray  # [B] variance 1 over the training pairs; 0 for the neutral moment, or else on average


class Liked(NamedTuple):
    """A caption of the training data, with its reward."""

    text: str
    value: float  # normalised
    times: int  # how often training showed it


class Reward:
    """A trained reward. Call it with captions; `statistics` has its mean, variance and quantiles over the data."""

    def __init__(self, options: Mapping[str, Any], params: Any, statistics: RewardStatistics, captions: np.ndarray,
                 counts: np.ndarray, facts: Mapping[str, Any]):  # fmt: skip
        """Called by `load_reward`, with the contents of a checkpoint."""
        self.options, self.params, self.statistics, self.facts = dict(options), params, statistics, dict(facts)
        self.captions, self.counts = captions, counts  # of the training data. [U, 256] uint8, [U] int32
        self._value = make_value(make_reward_model(options, 0)[0])

    @property
    def reads_only_messages(self) -> bool:
        """Whether a caption is enough to give a value."""
        return not observations_beside(self.options)

    def __call__(self, captions: Iterable[str] | np.ndarray, **more: np.ndarray) -> Values:
        """The rewards of texts, or of messages as NLE gives them. [B, 256] uint8

        `more`: further inputs of the reward: `vector` [B, 27] (scaled), `blstats` [B, 27], `glyphs` [B, 21, 79].
        """
        if isinstance(captions, str):  # its letters would be valued
            raise TypeError("give a list of texts, or messages of [B, 256] uint8")
        if isinstance(captions, np.ndarray) and captions.dtype == np.uint8:
            messages = captions
        else:
            messages = np.array([encode(text) for text in captions], np.uint8).reshape(-1, WIDTH)
        if messages.shape[1:] != (WIDTH,) or any(len(array) != len(messages) for array in more.values()):
            raise TypeError(f"give texts, or messages of [B, {WIDTH}] uint8, and a row of each further input per text")

        def value(rows: np.ndarray) -> Any:
            inputs = {name: np.asarray(array)[rows] for name, array in more.items()}
            return self._value(self.params, messages[rows], np.arange(len(rows)), inputs)

        raw = in_chunks(value, len(messages), CHUNK)
        return Values(raw, self.statistics.normalise(raw).astype(np.float32))

    def table(self) -> Values:
        """Values of `captions`, those of the training data; for rewards that read messages alone. [U]"""
        return self(self.captions)

    def top(self, number: int = 20) -> list[Liked]:
        """The captions of the training data with the highest rewards, highest first."""
        return self._ranked(number, -1)

    def bottom(self, number: int = 20) -> list[Liked]:
        """The captions of the training data with the lowest rewards, lowest first."""
        return self._ranked(number, 1)

    def _ranked(self, number: int, sign: int) -> list[Liked]:
        values = self.table().normalised
        seen = np.flatnonzero(self.counts > 0)
        order = seen[np.argsort(sign * values[seen], kind="stable")][:number]
        return [Liked(decode(self.captions[at]), float(values[at]), int(self.counts[at])) for at in order]


def load_reward(path: str | Path, which: str | int = "last") -> Reward:
    """Loads a reward of `--stage=train_reward`; only the checkpoint is needed. Characters outside Latin-1 read as "?".

    `path`: a workdir, its `reward` directory, a directory of checkpoints, or a release such as motif_jax/quickstart.
    `which`: "last", "best" (least validation loss) or the number of an epoch.
    """
    directory = find_saved(Path(path), "reward")
    _, checkpoint, facts = read_saved(directory, "reward", str(which))
    if "train" not in checkpoint or "statistics" not in facts:
        raise UserError(f"the checkpoints in {str(directory)!r} are not of a reward")
    with usable(directory):
        return reward_from(checkpoint | {"params": checkpoint["train"]["params"]}, facts, facts, directory)


def reward_from(arrays: Mapping[str, Any], facts: Mapping[str, Any], more: Mapping[str, Any], place: Path) -> Reward:
    """The reward of a checkpoint at `place`; `more`: its `facts`."""
    _, like = make_reward_model(facts["model"], 0)
    params = rebuild(like, leaves_by_path(arrays["params"]), place)
    statistics = read_statistics(facts["statistics"], place)
    return Reward(facts["model"], params, statistics, arrays["captions"], arrays["counts"], more)


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
