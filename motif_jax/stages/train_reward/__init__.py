"""The stage train_reward: fits a network to the preferences, so that preferred moments have higher rewards.

This module is quick to import, so that a workdir with a finished reward is skipped at once. fitting.py trains.
"""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.config.table import PATH, Flag, Number, Tables, Text, Value, Whole, check_values
from motif_jax.preferences.store import PairDataset
from motif_jax.rewards import labels
from motif_jax.stages import EXPERIMENT, Stage, with_result
from motif_jax.stages.annotate.setup import TABLES as ANNOTATION
from motif_jax.stages.train_reward.inputs import label_checksums, learnt_from
from motif_jax.structs import UserError
from motif_jax.system.files import read_json

MESSAGE_ENCODERS = ("lt_cnn", "lt_cnn_small")
TABLES: Tables = {
    "reward": {
        "annotators": Value(Text(longest=4000, piece=200, between=",:"), decides=True),
        "labels": Value(Text(("hard", "soft")), decides=True),
        "message": Value(Text((*MESSAGE_ENCODERS, "none")), decides=True),
        "blstats": Value(Flag(), decides=True),
        "crop": Value(Flag(), decides=True),
        "glyphs": Value(Flag(), decides=True),
        "learning_rate": Value(
            Number(0, above=True),
            decides=True,
            differs="the reward's learning rate is 1e-4 rather than 1e-5",
        ),
        "batch_size": Value(Whole(1, 2**20), decides=True),  # smaller batches are padded to this size
        "num_epochs": Value(Whole(1)),
        "validation_share": Value(Number(0, 1, above=True, below=True), decides=True),
        "import_from": Value(PATH, decides=True),
        "early_stop": Value(Whole()),
        "reference_quantiles": Value(Flag(), decides=True, differs="thresholds are not rounded to two decimals"),
    }
}
READS: Tables = EXPERIMENT | ANNOTATION | TABLES  # the annotation's section says from which annotation it is learnt


def artefacts(workdir: Path) -> list[Path]:
    """The directory of the reward."""
    return with_result(workdir / "reward")


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Whether the reward is trained to its last epoch; raises UserError if it was learnt from other labels."""
    section, folder = config.reward, workdir / "reward"
    try:
        done = read_json(folder / "statistics.json")
        epoch, best, learnt, made_of = (done[key] for key in ("epoch", "best_epoch", "annotators", "labels"))
        learnt, made_of = dict(learnt), dict(made_of)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    names = [] if config.reward.import_from else sorted(learnt_from(config))
    if sorted(learnt) != names:
        raise UserError(
            f"the reward in {str(workdir)!r} was learnt from {', '.join(learnt) or 'elsewhere'}, not from "
            f"{', '.join(names) or 'elsewhere'}: choose another --workdir"
        )
    if not (folder / "checkpoints" / str(epoch)).is_dir():
        return False
    if section.import_from:
        return True
    dataset = PairDataset(workdir / "dataset")
    if set(names) <= set(dataset.preference_names()) and label_checksums(dataset, config) != made_of:
        raise UserError(
            f"the labels have changed since the reward in {str(folder)!r} was learnt: remove it, or choose another "
            "--workdir"
        )
    stopped = bool(section.early_stop) and epoch - best >= section.early_stop
    return bool(epoch >= section.num_epochs or stopped)


def check(config: ConfigDict) -> None:
    """Raises UserError for values that cannot work."""
    check_values(config, READS)
    section = config.reward
    labels.parse_annotators(section.annotators)
    if section.message == "none" and not (section.blstats or section.crop or section.glyphs):
        raise UserError(
            "a reward that reads nothing learns nothing (--config.reward.message, .blstats, .crop, .glyphs)"
        )


def run(config: ConfigDict, workdir: Path) -> None:
    """Trains the reward, or imports a published one, and writes `workdir/reward`."""
    from motif_jax.stages.train_reward.fitting import import_published, train

    if config.reward.import_from:
        import_published(config, workdir / "reward")
    else:
        train(config, workdir)


STAGE = Stage(
    tables=TABLES,
    reads=READS,
    identity=("", "reward"),
    check=check,
    is_complete=is_complete,
    run=run,
    makes=("reward",),
    writes="--config.reward.message",
    memory="--config.reward.batch_size, .message",
    artefacts=artefacts,
)
