"""The stage train_reward: fits a network to the preferences, so that preferred moments have higher rewards.

This module is quick to import; fitting.py trains.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.config.table import PATH, Flag, Number, Tables, Text, Whole, check_values, table_of, value
from motif_jax.envs.worlds import TABLE as GAME
from motif_jax.preferences.store import PairDataset
from motif_jax.rewards import labels
from motif_jax.stages import EXPERIMENT, Stage, with_result
from motif_jax.stages.annotate.setup import TABLES as ANNOTATION
from motif_jax.stages.train_reward.inputs import AUTO, CHOSEN, chosen, label_checksums, learnt_from
from motif_jax.structs import UserError
from motif_jax.system.files import read_json

MESSAGE_ENCODERS = ("lt_cnn", "lt_cnn_small")


@dataclass(frozen=True)
class TrainReward:
    """The learnt reward."""

    annotators: str = value(
        "",
        Text(longest=4000, piece=200, between=",:"),
        "annotations to learn from: name, or name:0.7,other:0.3; empty: that of the stage annotate",
        decides=True,
    )
    labels: str = value(
        AUTO,
        Text((AUTO, "soft", "hard")),
        "soft: probabilities if available; hard: verdicts; auto: soft for new rewards, unchanged for existing ones",
        decides=True,
        differs="labels are probabilities where the annotator gave them, and a moment without a message is paid 0",
    )
    anchor: str = value(
        AUTO,
        Text((AUTO, "neutral", "none")),
        "zero of the reward: neutral: a moment without a message; none: the mean; auto: neutral for new rewards with "
        "soft labels",
        decides=True,
    )
    message: str = value("lt_cnn", Text((*MESSAGE_ENCODERS, "none")), "encoder of the message", decides=True)
    blstats: bool = value(False, Flag(), "also read the bottom line", decides=True)
    crop: bool = value(False, Flag(), "also read the map around the hero", decides=True)
    glyphs: bool = value(False, Flag(), "also read the whole map", decides=True)
    learning_rate: float = value(
        1e-4,
        Number(0, above=True),
        "learning rate; 1e-5 needs the paper's 500,000 pairs and more epochs",
        decides=True,
        differs="the reward's learning rate is 1e-4 rather than 1e-5",
    )
    batch_size: int = value(1024, Whole(1, 2**20), "pairs per batch; smaller batches are padded", decides=True)
    num_epochs: int = value(10, Whole(1), "epochs")
    validation_share: float = value(
        0.2, Number(0, 1, above=True, below=True), "share of the pairs held out for validation", decides=True
    )
    import_from: str = value(
        "", PATH, "checkpoint_N.pth of the published system, used instead of training", decides=True
    )
    reference_quantiles: bool = value(
        False,
        Flag(),
        "round thresholds to two decimals",
        decides=True,
        differs="thresholds are not rounded to two decimals",
    )


TABLES: Tables = {"reward": table_of(TrainReward)}
# `annotate` names the annotation that it learns from by default; the game has rules to compare the reward with.
READS: Tables = EXPERIMENT | {"env": GAME} | ANNOTATION | TABLES


def artefacts(workdir: Path) -> list[Path]:
    """The directory of the reward."""
    return with_result(workdir / "reward")


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Whether the reward has reached its last epoch; raises UserError if it was learnt from other labels."""
    config = chosen(config, workdir)
    section, folder = config.reward, workdir / "reward"
    try:
        done = read_json(folder / "statistics.json")
        epoch, learnt, made_of = (done[key] for key in ("epoch", "annotators", "labels"))
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
    return bool(epoch >= section.num_epochs)


def check(config: ConfigDict) -> None:
    """Raises UserError for values that cannot work."""
    check_values(config, READS)
    section = config.reward
    labels.parse_annotators(section.annotators)
    if section.message == "none" and not (section.blstats or section.crop or section.glyphs):
        raise UserError("the reward needs at least one input (--config.reward.message, .blstats, .crop, .glyphs)")


def run(config: ConfigDict, workdir: Path) -> None:
    """Trains the reward, or imports a published one, and writes `workdir/reward`."""
    from motif_jax.stages.train_reward.fitting import import_published, train

    config = chosen(config, workdir)
    if config.reward.import_from:
        import_published(config, workdir / "reward")
    else:
        train(config, workdir)


STAGE = Stage(
    tables=TABLES,
    reads=READS,
    identity=("", "reward"),
    unused=lambda config: [f"reward.{name}" for name in CHOSEN if config.reward[name] == AUTO],
    check=check,
    is_complete=is_complete,
    run=run,
    makes=("reward",),
    writes="--config.reward.message",
    memory="--config.reward.batch_size, .message",
    artefacts=artefacts,
)
