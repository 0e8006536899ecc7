"""Measures the annotate stage without its model: questions per pair, pairs per second, and memory.

The model is replaced by one that answers at once. So the figures cover captions, de-duplication, prompts, parsing,
answer cache and shards: the whole stage from the dataset on disk to the merged labels and the page.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.annotation.annotator import Annotator, Answer, Question
from motif_jax.annotation.backends import make_the_prompt
from motif_jax.config.file import find_config
from motif_jax.envs.texts import texts_of
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.store import PairDataset
from motif_jax.stages import annotate, collect
from motif_jax.stages.benchmark.rows import Row, say, take_turns
from motif_jax.system.own_folders import make_anew, remove_made

ANALYSIS = "The first message says that a monster was beaten, which is progress; the second says nothing. " * 10
SCRATCH = ".*"  # whatever the stages write there
BACKENDS: dict[str, dict[str, Any]] = {  # runs of the stage: what replaces the model, and with which captions
    "lexicon": {"backend": "lexicon"},
    "reason": {"backend": "server", "mode": "reason"},
    "score": {"backend": "server", "mode": "score"},
    "all_different": {"backend": "server", "mode": "reason", "captions": "msg_minbl", "both_orders": 0.0},
}


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Measures this part of the benchmark; returns its rows, each printed as soon as it is known."""
    rows: list[Row] = []

    def add(name: str, value: float, unit: str, **sizes: object) -> None:
        rows.append(say(Row(name, round(value, 4), unit, sizes)))

    folders = {pairs: workdir / f"annotation-{pairs}" for pairs in sorted(config.benchmark.pairs)}
    for pairs, folder in folders.items():
        collect_pairs(config, folder, pairs)
        questions = Questions(PairDataset(folder / "dataset"), "msg")
        different = int((questions.of_pair >= 0).sum())
        sizes = {"pairs": pairs, "different": different, "questions": len(questions)}
        add("annotate.questions_per_pair", len(questions) / pairs, "", **sizes)
        add("annotate.questions_per_different_pair", len(questions) / max(different, 1), "", **sizes)

    pairs, folder = max(folders.items())
    runs: dict[str, Callable[[], float]] = {
        name: partial(rate, config, folder, pairs, values) for name, values in BACKENDS.items()
    }
    for name, rates in take_turns(runs, config.benchmark.repeats).items():
        captions = BACKENDS[name].get("captions", "msg")
        asked = len(Questions(PairDataset(folder / "dataset"), captions))
        add(f"annotate.overhead.{name}", statistics.median(rates), "pairs/s", pairs=pairs, questions=asked, cores=1)
    for pairs, folder in folders.items():
        add("annotate.memory", peak_mib(folder), "MiB", pairs=pairs, backend="lexicon")
        remove_made(folder, SCRATCH)
    return rows


class Instant:
    """Answers at once, as a language model would: text that is parsed, or a probability."""

    def __init__(self, config: ConfigDict):
        """Takes prompt and mode from `config.annotate`."""
        self._prompt, self._mode = make_the_prompt(config.annotate, texts_of(config)), config.annotate.mode

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, Answer]]:
        """Yields each question with its answer, in order; the longer caption is preferred."""
        for question in filter(None, questions):
            shown = self._prompt.messages(question)[-1]["content"]
            better = len(question.second or "") > len(question.first)
            if self._mode == "score":
                yield question, Answer(0.8 if better else 0.2, "", 0.9, len(shown) // 4, 0, 1)
            else:
                said = "\n".join([ANALYSIS, *self._prompt.verdicts[better : better + 1]])
                verdict = self._prompt.read(said)
                yield question, Answer(verdict, said, 1.0, len(shown) // 4, 0, len(said) // 4)

    def close(self) -> None:
        """Does nothing: there are no resources to release."""


def collect_pairs(config: ConfigDict, folder: Path, pairs: int) -> None:
    """Collects a dataset of `pairs` pairs with the config's collector into `folder`."""
    config = config.copy_and_resolve_references()
    config.collect.update(
        {"num_pairs": pairs, "dataset": "", "segment_length": 1, "save_screen": False, "save_glyphs": False}
    )
    make_anew(folder, SCRATCH)
    with contextlib.redirect_stdout(io.StringIO()):
        collect.run(config, folder)


def rate(config: ConfigDict, folder: Path, pairs: int, values: dict[str, Any]) -> float:
    """Pairs per second of one run of the annotate stage with these config values."""
    config = config.copy_and_resolve_references()
    config.annotate.update(get_fresh(folder) | values)

    def make(config: ConfigDict) -> tuple[Annotator, dict[str, Any]]:
        return Instant(config), {"model": "instant", "mode": config.annotate.mode}

    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        annotate.run(config, folder, **({} if values["backend"] == "lexicon" else {"make": make}))
    seconds = time.perf_counter() - start
    for made in ("dataset/preference", "annotations", "answers"):
        shutil.rmtree(folder / made, ignore_errors=True)
    return pairs / seconds


def get_fresh(folder: Path) -> dict[str, Any]:
    """Config values for annotating everything in one job, with an empty cache in `folder`."""
    return {
        "cache_dir": str(folder / "answers"),
        "num_shards": 1,
        "shard": 0,
        "max_pairs": 0,
        "goal": "defaultgoal",
        "captions": "msg",
        "custom_name": "measured",
        "compare_with": "",
        "merge": "auto",
        "ignore_existing": False,
    }


def peak_mib(folder: Path) -> float:
    """Peak memory in MiB of a run of the annotate stage in a process of its own."""
    code = (
        "import sys; from pathlib import Path; from motif_jax.stages import annotate; import runpy\n"
        "config = runpy.run_path(sys.argv[2])['get_config']()\n"
        "annotate.run(config, Path(sys.argv[1]))\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    command = [sys.executable, "-c", code, str(folder), find_config("motif")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout.split()[-1]) / 1024
