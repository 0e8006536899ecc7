"""Training of the reward: pairs per second of an epoch, beside plain PyTorch and a matrix product.

An epoch is all steps over the training pairs, then the statistics and the validation. The plain way runs the same
network over every moment of every pair in PyTorch, where that is installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from benchmarks.annotation import collect_pairs
from benchmarks.device import is_accelerated, matrix_product, matrix_size
from benchmarks.rows import Row, Rows, medians, take_turns
from motif_jax.devices.mesh import make_mesh, map_update, replicate, shard
from motif_jax.rewards import labels
from motif_jax.rewards.batches import Batches, epoch_order, make_batches
from motif_jax.rewards.model import make_reward_model, make_value, value_captions
from motif_jax.rewards.preference import TrainState, make_reward_update, zero_sums
from motif_jax.rewards.statistics import compare, summarise_values
from motif_jax.stages import annotate
from motif_jax.stages.train_reward.setup import LabelledPairs, load_data

OPTIONS = {"message": "lt_cnn", "blstats": False, "crop": False, "glyphs": False}
DATASETS = {"random": {"collector": "random"}, "explorer": {}}  # what is learnt from: PAIRS pairs each
PAIRS = 20_000
TORCH_BATCHES = 2  # the plain way is timed on fewer


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `reward.*`, for datasets of random play and of the default players."""
    rows = Rows()
    with tempfile.TemporaryDirectory(dir=workdir) as folder:
        learners = {
            name: Learner(label_pairs(config, Path(folder) / name, values), config.reward.batch_size)
            for name, values in DATASETS.items()
        }
    runs: dict[str, Callable[[], float]] = {f"reward.epoch.{name}": one.epoch for name, one in learners.items()}
    if importlib.util.find_spec("torch") and not is_accelerated():
        runs["reward.torch"] = partial(plain_torch, learners["random"], config.reward.batch_size)
    runs["reward.matrix_product"] = matrix_product
    rounds = take_turns(runs, config.benchmark.repeats)
    rates = medians(rounds)
    for name, one in learners.items():
        sizes = {"pairs": PAIRS, "batch": config.reward.batch_size, "captions": len(one.data.table)}
        sizes["distinct_per_batch"] = one.distinct
        rows.add(f"reward.epoch_pairs_per_s.{name}", rates[f"reward.epoch.{name}"], "pairs/s", **sizes)
        rows.add(f"reward.flops.{name}", statistics.median(one.flops), "GFLOP/s", items=one.items)
    rows.add("reward.matrix_product", rates["reward.matrix_product"], "GFLOP/s", size=matrix_size())
    if "reward.torch" in rounds:
        rows.add("reward.torch_pairs_per_s", rates["reward.torch"], "pairs/s", batches=TORCH_BATCHES)
        rows.compare("reward.epoch_over_torch", rounds["reward.epoch.random"], rounds["reward.torch"])
    return rows


def label_pairs(config: ConfigDict, workdir: Path, values: dict[str, str]) -> LabelledPairs:
    """Collects a dataset in `workdir` with these values of `collect`, and labels it with the lexicon."""
    config = config.copy_and_resolve_references()
    config.annotate.update({"backend": "lexicon", "goal": "defaultgoal", "num_shards": 1, "shard": 0, "max_pairs": 0})
    config.annotate.update({"custom_name": "", "compare_with": "", "merge": "auto"})
    config.reward.update({"annotators": "", "labels": "hard"})
    workdir.mkdir()
    collect_pairs(config, workdir, PAIRS, **values)
    with contextlib.redirect_stdout(io.StringIO()):
        annotate.run(config, workdir)
    return load_data(config, workdir)


class Learner:
    """Training of the default network on one dataset."""

    def __init__(self, data: LabelledPairs, batch_size: int):
        """Makes the first batches and compiles everything, with one epoch that is not measured."""
        self.data, self._batch_size = data, batch_size
        self.split = labels.split_rows(np.flatnonzero(~np.isnan(data.target)), 0.2, 0)
        self._counts = np.bincount(data.ids[self.split.train].reshape(-1), minlength=len(data.table))
        apply, params = make_reward_model(OPTIONS, 0)
        optimizer = optax.adam(1e-4)
        self._mesh, self._value = make_mesh(), make_value(apply)
        self._update = map_update(make_reward_update(apply, optimizer), self._mesh, batch_axis=1, num_constants=2)
        self._state = replicate(TrainState(params, optimizer.init(params), zero_sums()), self._mesh)
        self._table = replicate(jnp.asarray(data.texts), self._mesh)
        self._number, self.items = 0, 0
        self.flops: list[float] = []
        batches = self._batches()
        self.items = batches.captions.shape[-1]
        self.distinct = round(float(np.mean([shown.max() + 1 for shown in batches.shows])))
        placed = shard(batches, self._mesh, axis=1)
        compiled = self._update.lower(self._state, self._table, np.int32(0), placed).compile()
        self._flops_per_step = float((compiled.cost_analysis() or {}).get("flops", float("nan")))
        self.epoch()
        self.flops.clear()

    def _batches(self) -> Batches:
        order = epoch_order(self.split.train, 0, self._number)
        size = self._batch_size
        return make_batches(order, self.data.ids, self.data.target, size, self._mesh.size, None, self.items)

    def epoch(self) -> float:
        """Pairs per second of one epoch, from cutting the batches to the validation."""
        start = time.perf_counter()
        batches = self._batches()
        placed = shard(batches, self._mesh, axis=1)
        stepping = time.perf_counter()
        for step in range(len(batches.captions)):
            self._state = self._update(self._state, self._table, np.int32(step), placed)
        jax.block_until_ready(self._state)
        self.flops.append(self._flops_per_step * len(batches.captions) / (time.perf_counter() - stepping) / 1e9)
        values = value_captions(self._value, self._state.params, self._table)
        summarise_values(values, self._counts)
        chosen = self.split.validation
        compare(values[self.data.ids[chosen]].mean(-1), self.data.target[chosen])
        self._number += 1
        return (len(self.split.train) + len(chosen)) / (time.perf_counter() - start)


def plain_torch(learner: Learner, batch_size: int) -> float:
    """Pairs per second of one epoch in PyTorch, extrapolated from TORCH_BATCHES batches, without de-duplication."""
    import torch

    data, split = learner.data, learner.split
    model = torch_network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    messages = data.table.messages
    start, pairs = time.perf_counter(), 0
    for number in range(TORCH_BATCHES):
        rows = split.train[number * batch_size : (number + 1) * batch_size]
        text = torch.from_numpy(messages[data.ids[rows].reshape(-1)].astype(np.int64))
        p = torch.from_numpy(data.target[rows])
        log = torch.log_softmax(model(text).reshape(-1, 2), -1)
        loss = (-(1 - p) * log[:, 0] - p * log[:, 1]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pairs += len(rows)
    training_s = (time.perf_counter() - start) / pairs  # per pair
    start = time.perf_counter()
    with torch.no_grad():
        model(text)
    forward_s = (time.perf_counter() - start) / len(rows)
    # Statistics look at the training pairs once more, and validation at the others.
    train, validation = len(split.train), len(split.validation)
    return (train + validation) / (train * (training_s + forward_s) + validation * forward_s)


def torch_network():
    """The layers of the default reward network, in PyTorch."""
    from torch import nn

    class Characters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(256, 32, padding_idx=0)

        def forward(self, message):
            return self.embedding(message).transpose(1, 2)

    sizes = ((32, 64, 7, True), (64, 64, 7, True), *[(64, 64, 3, False)] * 3, (64, 64, 3, True))
    layers: list[nn.Module] = [Characters()]
    for inputs, outputs, width, pooled in sizes:
        layers += [nn.Conv1d(inputs, outputs, width), nn.ReLU()] + [nn.MaxPool1d(3, 3)] * pooled
    layers += [nn.Flatten(), nn.Linear(320, 128), nn.ReLU(), nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 512)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(512, 1), nn.Flatten(0))
