"""The config of the stage, and what is made from it: the annotation's name, its backend, and its metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motif_jax.annotation.backends import Backend, Oracle, find_backend
from motif_jax.annotation.section import AnnotateSection
from motif_jax.config.table import section
from motif_jax.envs.texts import Texts, texts_of
from motif_jax.envs.worlds import TABLE as ENV
from motif_jax.files import LONGEST, short_name
from motif_jax.preferences.questions import BOTTOM_LINE, WITH_BOTTOM_LINE
from motif_jax.preferences.store import PairDataset, digest_of, fingerprint
from motif_jax.stages import Experiment
from motif_jax.structs import UserError

FLAG = "--config.annotate"
LONGEST_NAME = LONGEST - len(".html")  # the longest ending of a file that is named after an annotation


@dataclass(frozen=True)
class AnnotateConfig(Experiment):
    """The values that the stage reads, and that a judge is opened with."""

    env: Mapping[str, Any] = section(ENV)
    annotate: AnnotateSection = field(default_factory=AnnotateSection)


def check_section(section: AnnotateSection, texts: Texts, of_captions: bool = False) -> None:
    """Raises UserError for values that cannot work together, or for oracles if it must be a judge `of_captions`."""
    backend = find_backend(section)(section, texts, 0)
    problem = ""
    if not 0 <= section.shard < section.num_shards:
        problem = f"shard must be between 0 and {section.num_shards - 1}, not {section.shard} ({FLAG}.shard)"
    elif section.samples > 1 and (not backend.is_model or section.mode != "reason"):
        problem = f"only a model in mode reason answers in samples ({FLAG}.samples, .backend, .mode)"
    elif section.samples > 1 and not section.sampling.temperature:
        problem = f"at temperature 0 all samples would be the same ({FLAG}.samples, .sampling.temperature)"
    elif section.order != "as_now" and isinstance(backend, Oracle):
        problem = f"{section.backend!r} asks no questions, so they have no order ({FLAG}.order)"
    elif section.order == "disagreement" and (section.num_shards > 1 or backend.in_process):
        problem = (
            "order disagreement needs all answers in one job, and memory beside that of vllm: use num_shards=1, and "
            f"for a model a server ({FLAG}.order, .num_shards, .backend)"
        )
    elif of_captions and isinstance(backend, Oracle):
        problem = f"{section.backend!r} compares numbers of the game, and a judge of captions is asked ({FLAG}.backend)"
    if problem:
        raise UserError(problem)
    backend.check()


def label_name(section: AnnotateSection) -> str:
    """The annotation's name: custom, or made like published names from model, captions, goal and prompt."""
    return short_name(section.custom_name or find_backend(section).label(section), LONGEST_NAME)


def make_backend(config: AnnotateConfig, verdicts: bool = False) -> Backend:
    """The annotator that the config names. `verdicts`: rules give no probabilities."""
    section, texts = config.annotate, texts_of(config.env, config.annotate.lexicon)
    return find_backend(section)(section, texts, config.seed, verdicts=verdicts)


def open_dataset(workdir: Path) -> PairDataset:
    """The dataset of the workdir; raises UserError if it has none."""
    if not (workdir / "dataset").is_dir():
        raise UserError(f"there is no dataset in {str(workdir)!r} yet: run --stage=collect first (--workdir)")
    return PairDataset(workdir / "dataset")


def make_metadata(backend: Backend, section: AnnotateSection, dataset: PairDataset) -> dict[str, Any]:
    """Everything that decides the labels, as a flat dict: of the backend, the section and the dataset."""
    metadata: dict[str, Any] = {"num_shards": section.num_shards, "dataset": fingerprint(dataset)}
    metadata |= backend.flat_metadata()
    other_array = None  # that labels depend on, in addition to the messages
    if isinstance(backend, Oracle):
        other_array = backend.numbers(dataset)
    else:
        metadata |= {"captions": section.captions, "goal": section.goal} | backend.labelling()
        if section.captions == WITH_BOTTOM_LINE:
            if "blstats" not in dataset.data:
                raise UserError(
                    f"dataset {str(dataset.path)!r} has no data/blstats.npy, which captions with the bottom line need "
                    f"({FLAG}.captions)"
                )
            metadata["bottom_line_version"], other_array = BOTTOM_LINE, dataset.data["blstats"]
    return metadata | {"beside": "" if other_array is None else digest_of(other_array)}
