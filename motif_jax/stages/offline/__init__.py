"""The loop of all offline training: epochs over token batches, evaluation, checkpoints, resuming.

A stage that learns from transcripts declares itself by `declare`, makes a job by `job.make_job`, and gives it to
`epochs.run_offline`. This module is quick to import.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.stages import Stage, is_distributed, with_result
from motif_jax.system.files import read_json

SUMMARY = "summary.json"  # the last file of a training


def declare(name: str, folder: str, result: str = SUMMARY, **own: Any) -> Stage:
    """A stage with the section `name`; it writes to `folder`, and is complete when there is a `result` as well."""

    def is_complete(config: ConfigDict, workdir: Path) -> bool:
        """Whether it was trained for as many epochs as the config asks."""
        try:
            epoch = int(read_json(workdir / folder / SUMMARY)["epoch"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return epoch >= config[name].num_epochs and (workdir / folder / result).is_file()

    return Stage(
        identity=("", "transcripts", "language", name),
        is_complete=is_complete,
        makes=(folder,),
        writes=f"--config.{name}.keep_checkpoints",
        memory=f"--config.{name}.batch_size, .max_length",
        device_memory=f"--config.{name}.num_parts, .chunk, .max_length, .batch_size",
        artefacts=lambda workdir: with_result(workdir / folder, SUMMARY),
        shared=is_distributed,
        **own,
    )
