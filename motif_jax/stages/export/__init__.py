"""Export: makes a release of a workdir: its policy, its reward, and a card; releases.py lists the files.

  --stage=export                                                  in WORKDIR/export
  --stage=export --config.export.to=quickstart --config.export.licence=apache-2.0
  --stage=export --config.export.transcripts=turns                recorded conversations for TRL, in WORKDIR/trl
  --stage=export --config.export.language=merged                  the policy's language model alone

`load_policy`, `load_reward` and the flags that name a policy or a reward take the directory; it can be uploaded to the
Hugging Face Hub unchanged (`hf upload USER/NAME DIRECTORY`). The figures on the card are from the workdir's
evaluations. Parameters are written exactly, in float32.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ml_collections import ConfigDict

import motif_jax
from motif_jax.config.table import PATH, Tables, Text, Whole, check_values, table_of, value
from motif_jax.console import print_line
from motif_jax.devices.releases import PREFIX, ZOO, is_release, write_release
from motif_jax.envs.worlds import check_world
from motif_jax.stages import Stage, without_lock
from motif_jax.stages.evaluate import READS as EVALUATION
from motif_jax.stages.train_language.data import TranscriptsSection
from motif_jax.structs import UserError
from motif_jax.transcripts.store import Transcripts
from motif_jax.transcripts.trl import FORMATS, write_trl

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
        "none", Text(("none", *FORMATS)), "write transcripts for TRL's trainers instead (docs/transcripts.md)"
    )
    turns_mib: int = value(
        100, Whole(1), "maximum MiB of an episode with transcripts=turns, where each line repeats the conversation"
    )
    language: str = value(
        "none",
        Text(("none", "merged", "adapter")),
        "write the policy's language model instead: merged, in the Hugging Face layout; or its LoRA adapter, in PEFT's",
    )


TABLES: Tables = {"export": table_of(Export)}
READS: Tables = EVALUATION | TABLES | {"transcripts": table_of(TranscriptsSection)}


def check(config: ConfigDict) -> None:
    """Raises UserError for values that cannot work."""
    check_values(config, READS)
    check_world(config.env)
    if config.export.language != "none" and config.export.transcripts != "none":
        raise UserError(f"transcripts and a language model are two exports: choose one ({FLAG}.language, .transcripts)")
    if config.export.to and config.export.language != "none":
        check_empty(Path(config.export.to))
    elif config.export.to and config.export.transcripts != "none":
        check_no_file(Path(config.export.to))
    elif config.export.to:
        check_free(Path(config.export.to))


def check_free(directory: Path) -> None:
    """Raises UserError if the directory has anything other than a release."""
    check_place(directory)
    if directory.is_dir() and any(directory.iterdir()) and not is_release(directory):
        raise UserError(f"{str(directory)!r} has other files: name a new directory ({FLAG}.to)")


def check_empty(directory: Path) -> None:
    """Raises UserError if the directory exists and has files."""
    check_place(directory)
    if directory.is_dir() and any(directory.iterdir()):
        raise UserError(f"{str(directory)!r} has files: name a new directory ({FLAG}.to)")


def check_place(directory: Path) -> None:
    """Raises UserError if the path, or what exists of it, is not a directory."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    if not there.is_dir():
        raise UserError(f"{str(there)!r} is a file, not a directory ({FLAG}.to)")


def check_no_file(file: Path) -> None:
    """Raises UserError if the file exists."""
    check_place(file.parent)
    if os.path.lexists(file):
        raise UserError(f"{str(file)!r} exists already: name a new file ({FLAG}.to)")


def run(config: ConfigDict, workdir: Path) -> None:
    """Writes transcripts, or the release, and reads it back."""
    if config.export.transcripts != "none":
        export_transcripts(config, workdir)
        return
    if config.export.language != "none":
        from motif_jax.stages.export.language import export_language

        kind = config.export.language
        directory = Path(config.export.to) if config.export.to else workdir / f"language-{kind}"
        check_empty(directory)
        export_language(workdir, directory, kind)
        return
    from motif_jax.rewards.sources import trusted_classes
    from motif_jax.stages.export.card import arguments, write_card
    from motif_jax.stages.export.contents import check_same, find_contents, find_replay, find_results

    directory = Path(config.export.to) if config.export.to else workdir / "export"
    check_free(directory)
    name = (directory if config.export.to else workdir).resolve().name
    if directory.resolve().parent == ZOO.resolve():
        name = f"{PREFIX}/{name}"
    contents = find_contents(config, workdir)
    results = find_results(workdir, contents)
    facts = {"name": name, "made_by": f"motif_jax {motif_jax.__version__}", "licence": config.export.licence}
    facts |= {kind: {"step": part.step, "facts": part.facts} for kind, part in contents.items()} | {"results": results}
    card = write_card(facts, {kind: part.arrays for kind, part in contents.items()}, config.export.about)
    arrays = {kind: part.arrays for kind, part in contents.items()}
    write_release(directory, arrays, facts, card, find_replay(workdir, contents))
    check_same(directory, contents, trusted_classes(config, config.policy.network))
    sizes = {file.name: file.stat().st_size for file in sorted(directory.iterdir()) if file.is_file()}
    print_line(f"export: {', '.join(f'{file} ({size / 1e6:,.1f} MB)' for file, size in sizes.items())}")
    for kind in contents:
        print_line(f"export: motif_jax.load_{kind}({arguments(facts, kind, repr(str(directory)))})")


def export_transcripts(config: ConfigDict, workdir: Path) -> None:
    """Writes the transcripts in one of TRL's formats."""
    form = config.export.transcripts
    file = Path(config.export.to) if config.export.to else workdir / f"trl/{form}.jsonl"
    transcripts = Transcripts(Path(config.transcripts.path) if config.transcripts.path else workdir / "transcripts")
    count = write_trl(transcripts, file, form, config.export.turns_mib)
    print_line(f"export: {count:,} lines of {len(transcripts):,} episodes in {file}")


STAGE = Stage(
    tables=TABLES,
    reads=READS,
    check=check,
    is_complete=lambda config, workdir: False,  # it runs each time it is asked to
    run=run,
    writes="--config.export.to",
    memory="--config.export.to",
    lock=without_lock,
)
