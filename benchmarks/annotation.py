"""The stage annotate without its model: questions per pair, pairs per second, and memory.

The model is replaced by one that answers at once. So the figures cover captions, de-duplication, prompts, parsing,
answer cache and shards: the whole stage from the dataset on disk to the merged labels and the page.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from benchmarks.rows import Row, Rows, medians, take_turns
from motif_jax.annotation.annotator import Annotator, Answer, Question
from motif_jax.annotation.backends import make_the_prompt
from motif_jax.config.file import find_config
from motif_jax.envs.texts import texts_of
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.store import PairDataset
from motif_jax.stages import annotate, collect
from motif_jax.system.own_folders import make_anew, remove_made

ANALYSIS = "The first message says that a monster was beaten, which is progress; the second says nothing. " * 10
SCRATCH = ".*"  # whatever the stages write there
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
annotate.run(runpy.run_path(sys.argv[2])["get_config"](), Path(sys.argv[1]))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `annotate.*`, for datasets of the sizes in `benchmark.pairs`."""
    rows = Rows()
    folders = {pairs: workdir / f"annotation-{pairs}" for pairs in sorted(config.benchmark.pairs)}
    for pairs, folder in folders.items():
        make_anew(folder, SCRATCH)
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
        remove_made(folder, SCRATCH)
    return rows


def collect_pairs(config: ConfigDict, workdir: Path, pairs: int, **values: Any) -> None:
    """Collects a dataset into `workdir`, with these values of `collect`."""
    config = config.copy_and_resolve_references()
    config.collect.update({"num_pairs": pairs, "dataset": "", "segment_length": 1, **values})
    config.collect.update({"save_screen": False, "save_glyphs": False})
    with contextlib.redirect_stdout(io.StringIO()):
        collect.run(config, workdir)


def rate(config: ConfigDict, folder: Path, pairs: int, values: dict[str, Any]) -> float:
    """Pairs per second of one run of the annotate stage with these values of `annotate`, and an empty cache."""
    config = config.copy_and_resolve_references()
    config.annotate.update(FRESH | {"cache_dir": str(folder / "answers")} | values)

    def make(config: ConfigDict) -> tuple[Annotator, dict[str, Any]]:
        return Instant(config), {"model": "instant", "mode": config.annotate.mode}

    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        annotate.run(config, folder, **({} if values["backend"] == "lexicon" else {"make": make}))
    seconds = time.perf_counter() - start
    for made in ("dataset/preference", "annotations", "answers"):
        shutil.rmtree(folder / made, ignore_errors=True)
    return pairs / seconds


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
                yield question, Answer(self._prompt.read(said), said, 1.0, len(shown) // 4, 0, len(said) // 4)

    def close(self) -> None:
        """Does nothing: there are no resources to release."""
