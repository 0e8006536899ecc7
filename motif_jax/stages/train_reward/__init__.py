"""The stage train_reward: fits a network to the preferences, so that preferred moments have higher rewards.

This module is quick to import; fitting.py trains.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motif_jax.config.table import PATH, Flag, Number, Text, Whole, deciding, value
from motif_jax.files import read_json
from motif_jax.preferences.questions import NEUTRAL
from motif_jax.preferences.store import NAME, PairDataset, annotation_folder, digest_of, fingerprint
from motif_jax.rewards.registry import to_number
from motif_jax.rewards.statistics import IMPORT_FLAG, find_reward_file
from motif_jax.stages import Stage, decisive_in, exclusive_lock, later, with_result
from motif_jax.stages.annotate import AnnotateConfig, label_name
from motif_jax.structs import Need, UserError
from motif_jax.system.errors import Limits

MESSAGE_ENCODERS = ("lt_cnn", "lt_cnn_small")
AUTO = "auto"
FOLDER, SUMMARY = "reward", "statistics"
FLAG = "--config.reward.annotators"


@dataclass(frozen=True)
class TrainReward:
    """The learnt reward."""

    annotators: str = deciding(
        "",
        Text(longest=4000),
        "annotations to learn from: name, or name:0.7,other:0.3; empty: that of the stage annotate",
    )
    labels: str = deciding(
        AUTO,
        Text((AUTO, "soft", "hard")),
        "soft: probabilities if available; hard: verdicts; auto: soft",
        differs="labels are probabilities where the annotator gave them, and a moment without a message is paid 0",
    )
    anchor: str = deciding(
        AUTO,
        Text((AUTO, "neutral", "none")),
        "zero of the reward: neutral: a moment without a message; none: the mean; auto: neutral with soft labels, "
        "none with hard ones",
    )
    message: str = deciding("lt_cnn", Text((*MESSAGE_ENCODERS, "none")), "encoder of the message")
    blstats: bool = deciding(False, Flag(), "also read the bottom line")
    crop: bool = deciding(False, Flag(), "also read the map around the hero")
    glyphs: bool = deciding(False, Flag(), "also read the whole map")
    learning_rate: float = deciding(
        1e-4,
        Number(0, above=True),
        "learning rate; 1e-5 needs the paper's 500,000 pairs",
        differs="the reward's learning rate is 1e-4 rather than 1e-5",
    )
    batch_size: int = deciding(1024, Whole(1, 2**20), "pairs per batch; smaller batches are padded")
    num_epochs: int = value(10, Whole(1), "epochs")
    validation_share: float = deciding(
        0.2, Number(0, 1, above=True, below=True), "share of the pairs held out for validation"
    )
    import_from: str = deciding(
        "", PATH, "reward of another program (a checkpoint_N.pth of the published system), used instead of training"
    )
    reference_quantiles: bool = deciding(
        False, Flag(), "round thresholds to two decimals", differs="thresholds are not rounded to two decimals"
    )
    tensorboard: bool = value(True, Flag(), "also write metrics for TensorBoard")
    wandb: str = value("", Text(longest=128), "project of Weights & Biases (pip install wandb); empty: off")

    @property
    def is_soft(self) -> bool:
        """Whether labels are probabilities where the annotator gave them."""
        return self.labels != "hard"

    @property
    def is_anchored(self) -> bool:
        """Whether the reward of a moment without a message is to be 0."""
        return self.is_soft if self.anchor == AUTO else self.anchor == "neutral"

    @property
    def network(self) -> dict[str, Any]:
        """The arguments of `RewardModel`."""
        return {"message": self.message, "blstats": self.blstats, "crop": self.crop, "glyphs": self.glyphs}

    @property
    def reads_only_messages(self) -> bool:
        return not (self.blstats or self.crop or self.glyphs)


@dataclass(frozen=True)
class RewardConfig(AnnotateConfig):
    """The values that the stage reads.

    `annotate` names the annotation that it learns from by default; the game has rules to compare the reward with.
    """

    reward: TrainReward = TrainReward()

    def decisive(self) -> set[str]:
        return decisive_in(self, "", "reward")


def parse_annotators(text: str) -> dict[str, float]:
    """Parses `name`, or `name:0.7,other:0.3`, into weights by name, normalised to sum to one."""
    weights: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, weight = part.partition(":")
        number = to_number(weight or "1")
        if not re.fullmatch(NAME, name) or name in weights or not 0 < number < math.inf:
            form = "annotations are given as name:weight,name:weight, with weights above 0"
            raise UserError(f"{form}, not as {text!r} ({FLAG})")
        weights[name] = number
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def learnt_from(config: RewardConfig) -> dict[str, float]:
    """Names of the annotations that the reward is learnt from, with their weights."""
    return parse_annotators(config.reward.annotators) or {label_name(config.annotate): 1.0}


def label_checksums(dataset: PairDataset, config: RewardConfig) -> dict[str, str]:
    """Checksums of the dataset and of all labels, by name."""
    checksums = {"dataset": fingerprint(dataset)}
    for name in learnt_from(config):
        checksums[name] = digest_of(dataset.preference(name))
        folder = annotation_folder(dataset.path, name)
        for file, wanted in (("prob.npy", config.reward.is_soft), (NEUTRAL, config.reward.is_anchored)):
            if wanted and (folder / file).exists():
                with open(folder / file, "rb") as data:
                    checksums[f"{name}.{Path(file).stem}"] = hashlib.file_digest(data, "sha256").hexdigest()
    return checksums


def check(config: RewardConfig, workdir: Path) -> list[Need]:
    """Raises UserError for values that cannot work; returns the need of the reward of another program."""
    section = config.reward
    parse_annotators(section.annotators)
    if section.import_from and section.annotators:
        raise UserError(f"an imported reward is not learnt from annotations: give one ({IMPORT_FLAG}, {FLAG})")
    if section.message == "none" and section.reads_only_messages and not section.import_from:
        what = "a reward must read something: with message 'none', it needs blstats, crop or glyphs"
        raise UserError(f"{what} (--config.reward.message, .blstats, .crop, .glyphs)")
    file = Path(section.import_from)
    return [Need(lambda: find_reward_file(file).check(), file)] if section.import_from else []


def is_complete(config: RewardConfig, workdir: Path) -> bool:
    """Whether the reward has reached its last epoch; raises UserError if it was learnt from other labels."""
    section, file = config.reward, workdir / FOLDER / f"{SUMMARY}.json"
    if not file.exists():
        return False
    done, names = read_json(file), [] if section.import_from else learnt_from(config)
    before, now = (", ".join(sorted(some)) or "elsewhere" for some in (done["annotators"], names))
    if before != now:
        what = f"the reward in {str(workdir)!r} was learnt from {before}, not from {now}"
        raise UserError(f"{what}: choose another --workdir")
    if not (file.parent / "checkpoints" / str(done["epoch"])).is_dir():  # moved away, to start again
        return False
    if section.import_from:
        return True
    dataset = PairDataset(workdir / "dataset")
    if {*names} <= {*dataset.preference_names()} and label_checksums(dataset, config) != done["labels"]:
        changed = f"the labels have changed since the reward in {str(file.parent)!r} was learnt"
        raise UserError(f"{changed}: remove it, or choose another --workdir")
    return bool(done["epoch"] >= section.num_epochs)


STAGE = Stage(
    name="train_reward",
    sections=("reward",),
    config=RewardConfig,
    folders=lambda config, workdir: with_result(workdir / FOLDER),
    check=check,
    is_complete=is_complete,
    run=later("motif_jax.stages.train_reward.fitting:train"),
    lock=exclusive_lock,
    limits=Limits("--config.reward.message", "--config.reward.batch_size, .message"),
)
