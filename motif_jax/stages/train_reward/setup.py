"""Parts of the reward stage: loading of labels and captions, rewards of pairs, metrics, checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.annotation.backends import is_by_rules
from motif_jax.captions import CaptionTable, decode
from motif_jax.console import print_line
from motif_jax.envs.nethack.observations import scale_blstats
from motif_jax.envs.texts import texts_of
from motif_jax.preferences.folders import annotation_folder
from motif_jax.preferences.neutral import NEUTRAL, neutral_pairs
from motif_jax.preferences.shards import ROUNDING
from motif_jax.preferences.store import PairDataset, digest_of, fingerprint
from motif_jax.rewards import labels
from motif_jax.rewards.batches import PairBatches, without_padding
from motif_jax.rewards.model import Value
from motif_jax.rewards.preference import TrainState
from motif_jax.rewards.statistics import (
    RewardStatistics,
    compare,
    independent_questions,
    share_interval,
    summarise_values,
)
from motif_jax.stages.annotate.setup import label_name
from motif_jax.stages.train_reward.inputs import learnt_from
from motif_jax.structs import UserError
from motif_jax.system.files import read_json

PAIRS = 1024  # pairs per call of models that read more than the message
Extra = dict[str, Callable[[np.ndarray], np.ndarray]]  # functions from row numbers to arrays: [m] -> [m, 2, L, ...]


class LabelledPairs(NamedTuple):
    """The N pairs of a dataset, their captions and their labels; in training also pairs with the neutral moment."""

    dataset: PairDataset
    table: CaptionTable
    ids: np.ndarray  # [N, 2, L]
    texts: np.ndarray  # [U, W]: the captions, without trailing columns of zeros
    target: np.ndarray  # [N]: P(second is better), NaN where unknown
    targets: dict[str, np.ndarray]  # the same by annotation
    sided: np.ndarray  # [N] bool: whether the hard labels have a preference
    weights: dict[str, float]
    fingerprint: str
    checksum: str
    given: int  # N; rows from here on are pairs with the neutral moment, which are only trained on


def load_data(config: ConfigDict, workdir: Path) -> LabelledPairs:
    """Loads the dataset of the workdir with the labels that the config names, and checks both."""
    if not (workdir / "dataset").is_dir():
        raise UserError(f"there is no dataset in {str(workdir)!r} yet: run --stage=collect first (--workdir)")
    dataset = PairDataset(workdir / "dataset")
    weights, made_of = learnt_from(config), fingerprint(dataset)
    targets, hard = {}, {}
    for name in weights:
        codes = dataset.preference(name)
        folder = annotation_folder(dataset.path, name)
        soft = config.reward.labels != "hard" and (folder / "prob.npy").exists()
        record = folder / "merged.json"  # labels published by others have none
        if record.exists() and read_json(record)["facts"]["dataset"] != made_of:
            raise UserError(f"annotation {name!r} was made for another dataset ({labels.FLAG})")
        prob = np.load(folder / "prob.npy") if soft else None  # [N] float32, NaN where unknown
        targets[name] = labels.soft_target(codes, prob)
        hard[name] = labels.soft_target(codes, None)
    target = labels.mix(targets, weights)
    labels.check_targets(target, ", ".join(weights))
    table, ids = dataset.captions()
    sided = labels.mix(hard, weights) != 0.5
    texts = without_padding(table.messages)
    ids, given = np.asarray(ids), len(target)
    only_messages = not (config.reward.blstats or config.reward.crop or config.reward.glyphs)
    if config.reward.anchor != "none" and only_messages and len(weights) == 1:
        folder = annotation_folder(dataset.path, *weights)
        more, prob = neutral_pairs(folder, table, ids)
        ids, target = np.concatenate([ids, more]), np.concatenate([target, prob])
        sided = np.concatenate([sided, np.abs(prob - 0.5) > ROUNDING])
    elif config.reward.anchor != "none" and any(
        (annotation_folder(dataset.path, x) / NEUTRAL).exists() for x in weights
    ):
        print_line(
            "train_reward: the answers about a moment without a message are not used: they need one annotation, and a "
            "reward that reads messages alone (--config.reward.annotators, .blstats, .crop, .glyphs)"
        )
    digest = digest_of([target])
    return LabelledPairs(dataset, table, ids, texts, target, targets, sided, weights, made_of, digest, given)


def extra_observations(dataset: PairDataset, options: Mapping[str, Any]) -> Extra:
    """The observations that the model reads beside the message, as functions of row numbers."""
    extra: Extra = {}
    needs = {"blstats": options["blstats"] or options["crop"], "glyphs": options["crop"] or options["glyphs"]}
    for key, needed in needs.items():
        if needed and key not in dataset.data:
            hint = " (collect it with --config.collect.save_glyphs=True)" if key == "glyphs" else ""
            raise UserError(
                f"dataset {str(dataset.path)!r} has no data/{key}.npy, which this reward reads{hint} "
                "(--config.reward.blstats, .crop, .glyphs)"
            )
    if options["blstats"]:
        extra["vector"] = lambda rows: scale_blstats(dataset.data["blstats"][rows])
    if options["crop"]:
        extra["blstats"] = lambda rows: dataset.data["blstats"][rows].astype(np.int32)
    if options["crop"] or options["glyphs"]:
        extra["glyphs"] = lambda rows: dataset.data["glyphs"][rows]
    return extra


def value_pairs(value: Value, params: Any, table: jax.Array, data: LabelledPairs, extra: Extra) -> np.ndarray:
    """The raw reward of every step. [N, 2, L]"""
    count = len(data.ids)
    chunk = min(max(1, PAIRS // data.ids.shape[2]), count)
    found = np.empty(data.ids.shape, np.float32)
    for start in range(0, count, chunk):
        rows = np.arange(start, start + chunk) % count
        more = {name: get(rows) for name, get in extra.items()}
        flat = {name: array.reshape(-1, *array.shape[3:]) for name, array in more.items()}
        got = np.asarray(value(params, table, data.ids[rows].reshape(-1), flat)).reshape(chunk, *data.ids.shape[1:])
        found[start : start + chunk] = got[: count - start]
    return found


def make_statistics(
    values: np.ndarray | None, counts: np.ndarray, rewards: np.ndarray, reference: bool, anchor: float | None
) -> RewardStatistics:
    """Statistics that normalise the reward.

    Args:
      values: raw reward of every caption, if the model reads only messages; otherwise None. [U]
      counts: how often training shows each caption. [U]
      rewards: raw rewards of the training pairs, used if `values` is None. [M, 2, L]
      reference: whether quantiles are rounded to two decimals, as in the published system.
      anchor: raw reward of the neutral moment, if that is to be 0.
    """
    decimals = 2 if reference else None
    if values is not None:
        return summarise_values(values, counts, decimals, anchor)
    flat = rewards.reshape(-1)
    return summarise_values(flat, np.ones(len(flat)), decimals, anchor)


def neutral_reward(rewards: np.ndarray, data: LabelledPairs, rows: np.ndarray) -> float | None:
    """The mean raw reward of the steps without a message in some pairs; None if there are none.

    Args:
      rewards: of every step of every pair. [N, 2, L]
      rows: the pairs. [M]
    """
    silent = np.asarray(~data.table.messages.any(1))[data.ids[rows]]
    return float(rewards[rows][silent].mean(dtype=np.float64)) if silent.any() else None


def worth_of_captions(config: ConfigDict, data: LabelledPairs) -> np.ndarray | None:
    """The worth of every caption to the annotator, if the labels are of rules that are at hand; otherwise None. [U]"""
    section, name = config.annotate, label_name(config.annotate)
    if not is_by_rules(section) or list(data.weights) != [name]:
        return None
    try:
        facts = read_json(annotation_folder(data.dataset.path, name) / "merged.json")["facts"]
        rules = texts_of(config.env, config.annotate.lexicon).rules()
        known = (facts["rules"], facts["goal"]) == (rules.version, section.goal)
    except (OSError, ValueError, KeyError, TypeError, UserError):
        return None
    if not known:
        return None
    worth = rules.worth_to(section.goal)
    return np.array([worth(decode(message)).value for message in data.table.messages])


def measure(rewards: np.ndarray, rows: np.ndarray, data: LabelledPairs, counts: np.ndarray) -> dict[str, Any]:
    """Metrics on some pairs: loss, and how often the reward agrees with the annotators and with the score.

    Args:
      rewards: mean over the steps of each moment. [M, 2]
      rows: of the dataset. [M]
      counts: how often training shows each caption. [U]
    """
    target = data.target[rows]
    sided = data.sided[rows]
    row: dict[str, Any] = compare(rewards, target, sided)
    if row["sided"]:
        row["questions"], trials = independent_questions(data.ids[rows][sided])
        row["accuracy_low"], row["accuracy_high"] = share_interval(row["accuracy"], trials)
    unseen = (counts[data.ids[rows]] == 0).any((1, 2))
    row |= {f"unseen_{name}": value for name, value in compare(rewards[unseen], target[unseen], sided[unseen]).items()}
    if "score" in data.dataset.info:
        score = data.dataset.info["score"][rows]
        row["score_accuracy"] = compare(rewards, np.where(score[:, 0] == score[:, 1], 0.5, score[:, 1] > score[:, 0]))[
            "accuracy"
        ]
    if len(data.targets) > 1:
        for name, labelled in data.targets.items():
            row[f"accuracy.{name}"] = compare(rewards, labelled[rows])["accuracy"]
    return row


def advice(data: LabelledPairs) -> str:
    """Advice for datasets with too many ties between moments without messages; "" for others."""
    known = ~np.isnan(data.target[: data.given])
    ties, labelled = np.flatnonzero(known & ~data.sided[: data.given]), int(known.sum())
    silent = ~(data.table.messages != 0).any(1)[data.ids[ties]].any(2)  # moments without a message. [T, 2]
    if len(ties) <= labelled / 2 or silent.any(1).sum() <= len(ties) / 2:
        return ""
    return (
        f"{len(ties) / labelled:.0%} of the labelled pairs are ties, and {silent.any(1).mean():.0%} of these have a "
        "moment without a message: a smaller --config.collect.keep_empty keeps fewer such moments, in another --workdir"
    )


def about_labels(data: LabelledPairs, kind: str) -> str:
    """A sentence if soft labels are wanted and the annotators gave none; "" elsewhere."""
    if kind == "hard" or not np.isin(data.target[~np.isnan(data.target)], (0.0, 0.5, 1.0)).all():
        return ""
    return (
        f"the labels of {', '.join(map(repr, data.weights))} are verdicts without degrees, so a small difference "
        "may be rewarded like a large one: rules give degrees if they label again "
        "(--config.annotate.ignore_existing=True), "
        "language models with --config.annotate.mode=score"
    )


def about_anchor(kind: str, neutral: float | None) -> str:
    """A sentence if the anchor is to be the neutral moment and no moment is neutral; "" elsewhere."""
    if kind == "none" or neutral is not None:
        return ""
    return (
        "all captions of the training pairs have a message, so no moment is neutral and the reward has no anchor: its "
        "mean is 0 (--config.reward.anchor)"
    )


def train_figures(state: TrainState) -> dict[str, float]:
    """Mean loss and accuracy over the training pairs of the epoch; empty before the first epoch."""
    sums = jax.device_get(state.sums)
    if not sums.pairs:
        return {}
    return {
        "train_loss": float(sums.loss / sums.pairs),
        "train_accuracy": float(sums.right / sums.sided) if sums.sided else float("nan"),
    }


def check_values(rewards: np.ndarray, folder: Path, epoch: int) -> None:
    """Raises UserError if a reward is not finite, before the rewards are used."""
    if not np.isfinite(rewards).all():
        raise UserError(f"the rewards are not finite after epoch {epoch}; {_remedy(folder)}")


def _remedy(folder: Path) -> str:
    return f"remove {str(folder)!r} or choose another --workdir, and try a smaller --config.reward.learning_rate"


def check_finite(
    state: TrainState, batches: PairBatches, data: LabelledPairs, folder: Path, before: int, epoch: int
) -> None:
    """Raises UserError if the loss was not finite at a step of `batches`, which follow `before` steps of the epoch."""
    step = int(state.sums.broken) - 1
    if step < 0:
        return
    shown = batches.captions[step, 0][batches.shows[step, 0, :3].reshape(-1)]
    captions = ", ".join(repr(decode(message)) for message in data.table.messages[shown[:6]])
    raise UserError(
        f"the loss is not finite, first at step {before + step} of epoch {epoch}, on a batch whose first pairs "
        f"show {captions}; {_remedy(folder)}"
    )
