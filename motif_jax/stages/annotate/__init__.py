"""The stage annotate: a language model, or another annotator, says which moment of each pair is better.

Pairs with the same two captions share one question, which is asked once (preferences/questions.py). Several jobs can
share the work: each asks its part of the questions and writes the labels as a shard (job.py). The last one merges all
shards.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from motif_jax.annotation.backends import OpenBackend, Oracle, opened
from motif_jax.console import print_line
from motif_jax.envs.texts import texts_of
from motif_jax.envs.worlds import title
from motif_jax.preferences.folders import annotation_folder, labels_file
from motif_jax.preferences.merging import NOT_ASKED, check_free, is_merged, merge
from motif_jax.preferences.questions import WITH_BOTTOM_LINE, Questions
from motif_jax.preferences.shards import Part, Shard, rows_of
from motif_jax.preferences.store import PairDataset, Preference
from motif_jax.run import Lock, Run
from motif_jax.stages import Stage
from motif_jax.stages.annotate.job import AnnotationJob
from motif_jax.stages.annotate.page import page_of, write_page
from motif_jax.stages.annotate.setup import (
    READS,
    TABLES,
    AnnotateConfig,
    check_section,
    label_name,
    make_backend,
    make_metadata,
    open_dataset,
)
from motif_jax.structs import UserError

MOST_TIES = 0.9  # share of the answers


def begun(config: AnnotateConfig, workdir: Path) -> list[Path]:
    """The directory of the annotation's shards."""
    return [annotation_folder(workdir / "dataset", label_name(config.annotate))]


def lock(config: AnnotateConfig) -> Lock:
    """The lock of the workdir: several jobs may work in it at the same time."""
    return Lock.SHARED if config.annotate.num_shards > 1 else Lock.EXCLUSIVE


def check(config: AnnotateConfig) -> None:
    """Raises UserError for values that cannot work, before anything is started."""
    check_section(config.annotate, texts_of(config.env, config.annotate.lexicon))


def is_complete(config: AnnotateConfig, workdir: Path) -> bool:
    """Whether the config's annotation is merged, with a label for every pair."""
    section = config.annotate
    name = label_name(section)
    if section.ignore_existing or section.compare_with or not page_of(workdir, name).exists():
        return False
    dataset = PairDataset(workdir / "dataset")
    metadata = make_metadata(make_backend(config), section, dataset)
    return is_merged(dataset, name, metadata) and not (dataset.preference(name) == Preference.UNKNOWN).any()


def run(config: AnnotateConfig, workdir: Path, open_backend: OpenBackend = opened) -> None:
    """Labels this job's shard, and merges all shards after the last one. `open_backend` opens the judge, if needed."""
    section, part = config.annotate, Part(config.annotate.shard, config.annotate.num_shards)

    # ---- questions
    dataset = open_dataset(workdir)
    if section.captions == WITH_BOTTOM_LINE and "blstats" not in dataset.data:
        raise UserError(
            f"dataset {str(dataset.path)!r} has no data/blstats.npy, which captions with the bottom line need "
            "(--config.annotate.captions)"
        )
    name = label_name(section)
    check_free(dataset, name)
    for other in filter(None, section.compare_with.split(",")):
        dataset.preference(other)
    backend = make_backend(config)
    metadata = make_metadata(backend, section, dataset)
    if isinstance(backend, Oracle):
        questions, of_pair = None, np.arange(len(dataset))  # it answers every pair. [N]
    else:
        questions = Questions(dataset, section.captions)
        of_pair = questions.of_pair

    # ---- ask
    folder, labels = annotation_folder(dataset.path, name), labels_file(dataset.path, name)
    stage = Run(workdir).stage("annotate", str(folder.relative_to(workdir)))  # its shards are locked one by one
    if section.merge == "auto":
        rows = rows_of(part, of_pair)
        with Shard(folder, part, len(rows), metadata, section.ignore_existing, labels) as shard:
            stage.bind(config)
            if isinstance(backend, Oracle):
                ask_oracle(backend, dataset, shard, rows[rows < (section.max_pairs or np.inf)])
            else:
                assert questions is not None
                AnnotationJob(config, backend, questions, shard, rows).run(open_backend)

    # ---- merge
    partial = section.merge == "partial" or section.max_pairs > 0
    merged = merge(dataset, name, part.of, of_pair, metadata, partial)
    shown = {kind: value for kind, value in merged.counts.items() if value or kind != "not asked"}
    shares = ", ".join(f"{value / len(dataset):.1%} {kind}" for kind, value in shown.items())
    if not merged.written:
        waiting = len(merged.missing)
        print_line(f"annotate: {name}: shard {part.number} is done; {waiting} of {part.of} shards are not finished yet")
        return
    print_line(f"annotate: {name}: {len(dataset):,} pairs: {shares}")
    asked = np.flatnonzero(of_pair >= 0)
    ties = float((dataset.preference(name)[asked] == Preference.TIE).mean()) if len(asked) else 0.0
    if not isinstance(backend, Oracle) and backend.is_model and ties > MOST_TIES:
        print_line(
            f"annotate: {ties:.0%} of the answers are ties, from which little can be learnt: they are within "
            f"{backend.tie_margin:g} of one half (--config.annotate.tie_margin)"
        )
    page = write_page(stage, section, backend, dataset, name, questions, merged, title(config.env))
    print_line(f"annotate: labels in {labels}, page: {page}")


def ask_oracle(oracle: Oracle, dataset: PairDataset, shard: Shard, wanted: np.ndarray) -> None:
    """Labels `wanted`, the first rows of a shard."""
    started = time.monotonic()
    shard.set(np.arange(len(wanted)), oracle.answer(dataset, wanted), 0.0)
    unknown = int((shard.codes == Preference.UNKNOWN).sum())
    log = {NOT_ASKED: unknown, "seconds": round(time.monotonic() - started, 1)}
    shard.commit(len(wanted) == len(shard.codes), log)


STAGE = Stage(
    config=AnnotateConfig,
    tables=TABLES,
    reads=READS,
    check=check,
    is_complete=is_complete,
    run=run,
    writes="--config.annotate.cache_dir",
    memory="--config.annotate.batch_size",
    begun=begun,
    lock=lock,
    # A language model runs on a server or in vLLM.
    loads_jax=lambda config: bool(config.annotate.order == "disagreement"),
)
