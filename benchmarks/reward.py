"""The annotation without its model, and the training of the reward.

`annotate.*`: questions per pair, pairs per second, and memory of the stage annotate. The model is replaced by one that
answers at once. So the figures cover captions, de-duplication, prompts, parsing, answer cache and shards: the whole
stage from the dataset on disk to the merged labels and the page.

`reward.*`: pairs per second of an epoch, beside plain PyTorch and a matrix product. An epoch is all steps over the
training pairs, then the statistics and the validation. The plain way runs the same network over every moment of every
pair in PyTorch, where that is installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from benchmarks.device import count_flops, find_cpu, is_accelerated, matrix_product, matrix_size, mesh_of
from benchmarks.rows import Row, Rows, medians, take_turns
from motif_jax.annotation.annotator import Annotator, Question, QuestionAnswer
from motif_jax.annotation.backends import CaptionBackend, Prompted, opened
from motif_jax.config.file import find_config
from motif_jax.devices.mesh import make_mesh, map_update, replicate, shard
from motif_jax.files import make_anew, remove_folder
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.store import PairDataset
from motif_jax.rewards.preference import (
    PairBatches,
    TrainState,
    epoch_order,
    make_batches,
    make_reward_model,
    make_reward_update,
    make_value,
    split_rows,
    value_captions,
    without_padding,
    zero_sums,
)
from motif_jax.rewards.statistics import compare, summarise_values
from motif_jax.stages import annotate, collect, train_reward
from motif_jax.stages.train_reward.fitting import LabelledPairs, load_data

OPTIONS = {"message": "lt_cnn", "blstats": False, "crop": False, "glyphs": False}
DATASETS = {"random": {"collector": "random"}, "explorer": {}}  # what is learnt from: PAIRS pairs each
PAIRS = 20_000
TORCH_BATCHES = 2  # the plain way is timed on fewer
ANALYSIS = "The first message says that a monster was beaten, which is progress; the second says nothing. " * 10
BACKENDS: dict[str, dict[str, Any]] = {  # runs of the stage: what replaces the model, and with which captions
    "lexicon": {"backend": "lexicon"},
    "reason": {"backend": "server", "mode": "reason"},
    "score": {"backend": "server", "mode": "score"},
    "all_different": {"backend": "server", "mode": "reason", "captions": "msg_minbl", "both_orders": 0.0},
}
FRESH = {  # everything is annotated in one job
    "num_shards": 1, "shard": 0, "max_pairs": 0, "goal": "defaultgoal", "captions": "msg", "custom_name": "measured",
    "compare_with": "", "merge": "auto", "ignore_existing": False,
}  # fmt: skip
STAGE_ALONE = """
import runpy, sys; from pathlib import Path; from motif_jax.stages import annotate
annotate.run(annotate.STAGE.view(runpy.run_path(sys.argv[2])["get_config"]().to_dict()), Path(sys.argv[1]))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


# ---- annotation


def measure_annotation(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `annotate.*`, for datasets of the sizes in `benchmark.pairs`."""
    rows = Rows()
    folders = {pairs: workdir / f"annotation-{pairs}" for pairs in sorted(config.benchmark.pairs)}
    for pairs, folder in folders.items():
        make_anew(folder)
        collect_pairs(config, folder, pairs)
        questions = Questions(PairDataset(folder / "dataset"), "msg")
        different = int((questions.of_pair >= 0).sum())
        sizes = {"pairs": pairs, "different": different, "questions": len(questions)}
        rows.add("annotate.questions_per_pair", len(questions) / pairs, "", 4, **sizes)
        rows.add("annotate.questions_per_different_pair", len(questions) / max(different, 1), "", 4, **sizes)
    pairs, folder = max(folders.items())
    runs = {name: partial(rate, config, folder, pairs, values) for name, values in BACKENDS.items()}
    for name, found in medians(take_turns(runs, config.benchmark.repeats)).items():
        asked = len(Questions(PairDataset(folder / "dataset"), BACKENDS[name].get("captions", "msg")))
        rows.add(f"annotate.overhead.{name}", found, "pairs/s", 4, pairs=pairs, questions=asked, cores=1)
    for pairs, folder in folders.items():
        command = [sys.executable, "-c", STAGE_ALONE, str(folder), find_config("motif")]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.add("annotate.memory", int(done.stdout.split()[-1]) / 1024, "MiB", 4, pairs=pairs, backend="lexicon")
        remove_folder(folder)
    return rows


def collect_pairs(config: ConfigDict, workdir: Path, pairs: int, **values: Any) -> None:
    """Collects a dataset into `workdir`, with these values of `collect`."""
    config = config.copy_and_resolve_references()
    config.collect.update({"num_pairs": pairs, "dataset": "", "segment_length": 1, **values})
    config.collect.update({"save_screen": False, "save_glyphs": False})
    with contextlib.redirect_stdout(io.StringIO()):
        collect.run(collect.STAGE.view(config.to_dict()), workdir)


def rate(config: ConfigDict, folder: Path, pairs: int, values: dict[str, Any]) -> float:
    """Pairs per second of one run of the annotate stage with these values of `annotate`, and an empty cache."""
    config = config.copy_and_resolve_references()
    config.annotate.update(FRESH | {"cache_dir": str(folder / "answers")} | values)

    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        annotate.run(annotate.STAGE.view(config.to_dict()), folder, instant)
    seconds = time.perf_counter() - start
    for made in ("dataset/preference", "annotations", "answers"):
        shutil.rmtree(folder / made, ignore_errors=True)
    return pairs / seconds


def instant(backend: CaptionBackend) -> Annotator:
    """Opens rules as they are, and puts `Instant` in the place of a model."""
    return Instant(backend) if isinstance(backend, Prompted) else opened(backend)


class Instant:
    """Answers at once, as a language model would: text that is parsed, or a probability."""

    model = "instant"

    def __init__(self, backend: Prompted):
        self._prompt, self._mode = backend.template, backend.section.mode

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        """Yields each question with its answer, in order; the longer caption is preferred."""
        for question in filter(None, questions):
            shown = self._prompt.messages(question)[-1]["content"]
            better = len(question.second or "") > len(question.first)
            if self._mode == "score":
                yield question, QuestionAnswer(0.8 if better else 0.2, "", 0.9, len(shown) // 4, 0, 1)
            else:
                said = "\n".join([ANALYSIS, *self._prompt.verdicts[better : better + 1]])
                yield question, QuestionAnswer(self._prompt.read(said), said, 1.0, len(shown) // 4, 0, len(said) // 4)

    def close(self) -> None:
        """Does nothing: there are no resources to release."""


# ---- training


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `reward.*`, for datasets of random play and of the default players."""
    find_cpu()  # now, as operations are counted after pairs have been collected
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
    config.annotate.update(FRESH | {"backend": "lexicon", "custom_name": ""})
    config.reward.update({"annotators": "", "labels": "hard"})
    workdir.mkdir()
    collect_pairs(config, workdir, PAIRS, **values)
    with contextlib.redirect_stdout(io.StringIO()):
        annotate.run(annotate.STAGE.view(config.to_dict()), workdir)
    return load_data(train_reward.STAGE.view(config.to_dict()), workdir)


class Learner:
    """Training of the default network on one dataset."""

    def __init__(self, data: LabelledPairs, batch_size: int):
        """Makes the first batches and compiles everything, with one epoch that is not measured."""
        self.data, self._batch_size = data, batch_size
        self.split = split_rows(np.flatnonzero(~np.isnan(data.target)), 0.2, 0)
        self._counts = np.bincount(data.ids[self.split.train].reshape(-1), minlength=len(data.table))
        apply, params = make_reward_model(OPTIONS, 0)
        optimizer = optax.adam(1e-4)
        self._mesh, self._value = make_mesh(), make_value(apply)
        update = make_reward_update(apply, optimizer)
        self._update = map_update(update, self._mesh, batch_axis=1, num_constants=2)
        self._state = replicate(TrainState(params, optimizer.init(params), zero_sums()), self._mesh)
        self._table = replicate(jnp.asarray(without_padding(data.table.messages)), self._mesh)
        self._number, self.items = 0, 0
        self.flops: list[float] = []
        batches = self._batches()
        self.items = batches.captions.shape[-1]
        self.distinct = round(float(np.mean([shown.max() + 1 for shown in batches.shows])))
        placed = shard(batches, self._mesh, axis=1)
        counted = map_update(update, mesh_of(find_cpu()), batch_axis=1, num_constants=2)
        of_place = count_flops(counted, self._state, self._table, np.int32(0), placed)
        self._flops_per_step = of_place * self._mesh.size
        self.epoch()
        self.flops.clear()

    def _batches(self) -> PairBatches:
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
