"""The config's section annotate, and what is made from it: the annotation's name, its backend, and its facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from motif_jax.annotation.backends import Backend, Oracle, find_backend
from motif_jax.annotation.section import AnnotateSection
from motif_jax.config.table import Tables, section, tables_of
from motif_jax.envs.texts import Texts, texts_of
from motif_jax.envs.worlds import TABLE as ENV
from motif_jax.files import LONGEST, read_json, short_name
from motif_jax.preferences.folders import annotation_folder
from motif_jax.preferences.questions import BOTTOM_LINE, WITH_BOTTOM_LINE
from motif_jax.preferences.store import PairDataset, digest_of, fingerprint
from motif_jax.stages import Experiment
from motif_jax.structs import UserError

LONGEST_NAME = LONGEST - len(".html")  # the longest ending of a file that is named after an annotation
TEMPERATURE = "rules_temperature"  # among the facts of labels that rules gave as probabilities


@dataclass(frozen=True)
class AnnotateConfig(Experiment):
    """What the stage reads, and what a judge is opened with."""

    env: Mapping[str, Any] = section(ENV)
    annotate: AnnotateSection = field(default_factory=AnnotateSection)


READS = tables_of(AnnotateConfig)
TABLES: Tables = {"annotate": READS["annotate"]}


def check_section(section: AnnotateSection, texts: Texts) -> None:
    """Raises UserError for values that cannot work together; no model is loaded or asked."""
    backend = find_backend(section)(section, texts, 0)
    if not 0 <= section.shard < section.num_shards:
        raise UserError(
            f"shard must be between 0 and {section.num_shards - 1}, not {section.shard} "
            "(--config.annotate.shard, .num_shards)"
        )
    is_model = not isinstance(backend, Oracle) and backend.is_model
    if section.samples > 1 and (not is_model or section.mode != "reason"):
        raise UserError(
            f"only a model in mode reason answers in samples, and samples = {section.samples} "
            "(--config.annotate.samples, .backend, .mode)"
        )
    if section.samples > 1 and not section.sampling.temperature:
        raise UserError(
            f"at temperature 0 all {section.samples} samples would be the same (--config.annotate.samples, "
            ".sampling.temperature)"
        )
    if section.order != "as_now" and isinstance(backend, Oracle):
        raise UserError(f"{section.backend!r} asks no questions, so they have no order (--config.annotate.order)")
    in_process = not isinstance(backend, Oracle) and backend.in_process
    if section.order == "disagreement" and (section.num_shards > 1 or in_process):
        raise UserError(
            "order disagreement needs all answers in one job, and memory beside that of vllm: use num_shards=1, and "
            "for a model a server (--config.annotate.order, .num_shards, .backend)"
        )
    backend.check()


def label_name(section: AnnotateSection) -> str:
    """The annotation's name: custom, or made like published names from model, captions, goal and prompt."""
    return short_name(section.custom_name or find_backend(section).label(section), LONGEST_NAME)


def make_backend(config: AnnotateConfig, dataset: PairDataset | None = None) -> Backend:
    """What labels the pairs of a dataset; None: a judge that gives verdicts, without degrees."""
    section, texts = config.annotate, texts_of(config.env, config.annotate.lexicon)
    make = find_backend(section)
    if dataset is not None:
        backend = make(section, texts, config.seed)
        if TEMPERATURE not in backend.facts() or section.ignore_existing or not _has_verdicts(section, dataset):
            return backend
    return make(section, texts, config.seed, verdicts=True)


def _has_verdicts(section: AnnotateSection, dataset: PairDataset) -> bool:
    """Whether the annotation was begun before rules gave probabilities; it goes on as it began."""
    records = map(read_json, annotation_folder(dataset.path, label_name(section)).glob("shard-*.json"))
    return any(record["counts"] and TEMPERATURE not in record["facts"] for record in records)


def make_metadata(backend: Backend, section: AnnotateSection, dataset: PairDataset) -> dict[str, Any]:
    """All that decides the labels, as a flat dict: of the backend, the section and the dataset."""
    metadata: dict[str, Any] = {"num_shards": section.num_shards, "dataset": fingerprint(dataset)} | backend.facts()
    beside = None  # an array that labels depend on, beside the messages
    if isinstance(backend, Oracle):
        beside = backend.numbers(dataset)
    else:
        metadata |= {"captions": section.captions, "goal": section.goal} | backend.labelling()
        if section.captions == WITH_BOTTOM_LINE:
            metadata["bottom_line_version"], beside = BOTTOM_LINE, dataset.data["blstats"]
    return metadata | {"beside": "" if beside is None else digest_of([beside])}
