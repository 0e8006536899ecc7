"""Export: makes a release of a workdir: its policy, its reward, and a card; devices/releases.py lists the files.

  --stage=export                                                  in WORKDIR/export
  --stage=export --config.export.to=quickstart --config.export.licence=apache-2.0
  --stage=export --config.export.transcripts=turns                recorded conversations for TRL, in WORKDIR/trl
  --stage=export --config.export.language=merged                  the policy's language model alone

`load_policy`, `load_reward` and the flags that name a policy or a reward take the directory; it can be uploaded to the
Hugging Face Hub unchanged (`hf upload USER/NAME DIRECTORY`). The figures on the card are from the workdir's
evaluations. Parameters are written exactly, in float32. This module is quick to import; release.py writes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from motif_jax.config.table import PATH, Text, Whole, value
from motif_jax.devices.releases import is_release
from motif_jax.envs.worlds import check_world
from motif_jax.files import check_place
from motif_jax.plugins import CONTRIB
from motif_jax.stages import Stage, later, without_lock
from motif_jax.stages.evaluate import EvaluateConfig
from motif_jax.structs import Need, UserError
from motif_jax.system.errors import Limits
from motif_jax.transcripts.imports import FORMATS
from motif_jax.transcripts.store import read_stored_record

FLAG = "--config.export"


@dataclass(frozen=True)
class Export:
    """A release of policy and reward."""

    to: str = value("", PATH, "output directory, or file of transcripts; empty: in the workdir")
    licence: str = value(
        "", Text(longest=60, letters="A-Za-z0-9.-"), "licence as the Hugging Face Hub spells it, such as apache-2.0"
    )
    about: str = value("", Text(longest=2000), "sentences of your own for the card")
    transcripts: str = value(
        "none", Text(("none", *FORMATS)), "write transcripts for TRL instead (docs/transcripts.md)"
    )
    turns_mib: int = value(100, Whole(1), "maximum MiB per episode: lines of transcripts=turns repeat conversations")
    language: str = value(
        "none",
        Text(("none", "merged", "adapter")),
        "write the policy's language model instead: merged, in the Hugging Face layout; or its LoRA adapter, in PEFT's",
    )


@dataclass(frozen=True)
class ExportConfig(EvaluateConfig):
    """The values that the stage reads."""

    export: Export = Export()

    def decisive(self) -> set[str]:
        return set()  # a release is written anew


def check(config: ExportConfig, workdir: Path) -> list[Need]:
    """Raises UserError for values that cannot work; returns what is needed: a place for the output, and transcripts."""
    section, path, source = config.export, output_of(config.export, workdir), config.transcripts.path
    check_world(config.env)
    if section.transcripts != "none" and section.language != "none":
        flags = f"{FLAG}.transcripts, .language"
        raise UserError(f"transcripts and a language model are written one by one: leave one of them at none ({flags})")
    if section.language == "adapter" and not (CONTRIB / "readers").is_dir():
        raise UserError(f"adapters are written by contrib/readers, which is not there ({FLAG}.language)")
    needs = []
    if section.to or section.transcripts == "none":  # the workdir's own file of transcripts is written anew
        needs.append(Need(lambda: check_output(section, path)))
    if section.transcripts != "none" and source:
        needs.append(Need(lambda: read_stored_record(Path(source)), Path(source)))
    return needs


def output_of(section: Export, workdir: Path) -> Path:
    """The directory to write, or the file of transcripts."""
    if section.to:
        return Path(section.to)
    if section.transcripts != "none":
        return workdir / f"trl/{section.transcripts}.jsonl"
    return workdir / ("export" if section.language == "none" else f"language-{section.language}")


def check_output(section: Export, path: Path) -> None:
    """Raises UserError if the output cannot be written, or would replace anything other than a release by a release."""
    replaceable = section.transcripts == "none" and path.is_dir()
    replaceable = replaceable and (not any(path.iterdir()) or (section.language == "none" and is_release(path)))
    if os.path.lexists(path) and not replaceable:
        raise UserError(f"{str(path)!r} exists already, or has other files: name a new one ({FLAG}.to)")
    check_place(path.parent if section.transcripts != "none" else path, f"{FLAG}.to")


STAGE = Stage(
    name="export",
    sections=("export",),
    config=ExportConfig,
    folders=lambda config, workdir: [Path(config.export.to)] if config.export.to else [],
    check=check,
    is_complete=lambda config, workdir: False,  # it runs each time it is asked to
    run=later("motif_jax.contrib.export.release:run"),
    lock=without_lock,
    limits=Limits("--config.export.to", "--config.export.to"),
)
