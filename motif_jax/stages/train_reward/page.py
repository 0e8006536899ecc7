"""HTML page of the trained reward: curves, captions with high and low rewards, distribution, calibration.

And the reward's part of the report, which has the most important of them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.captions import decode
from motif_jax.files import write_whole
from motif_jax.pages.blocks import page, quoted, table, tiles
from motif_jax.pages.charts import columns, curves
from motif_jax.pages.formats import esc
from motif_jax.preferences.store import PairDataset, Preference
from motif_jax.rewards.statistics import RewardStatistics, calibration
from motif_jax.run import Head, Run, StageRun, date_of
from motif_jax.stages.annotate.page import TITLE as PREFERENCES
from motif_jax.stages.annotate.page import aim_of, label_bar, sentence

SHOWN = 25  # captions at either end
IN_REPORT, LIKED = 12, 6  # the same in the report, and in its table of several runs
TITLE = "The reward"  # of the report's part
BINS = 60  # of the histogram
THRESHOLDS = (0.5, 0.65, 0.8)  # quantile levels; rewards below one of them may be set to 0 for the agent
USUAL = 0.5  # the level that is used by default (--config.policy.threshold_quantile)


class Captions(NamedTuple):
    """The captions that training shows, with their rewards; for rewards that read messages alone."""

    statistics: RewardStatistics
    rewards: np.ndarray  # normalised. [S]
    messages: np.ndarray  # [S, 256]
    counts: np.ndarray  # [S]

    def by_reward(self) -> np.ndarray:
        """Numbers of the captions, from the lowest reward to the highest. [S]"""
        return np.argsort(self.rewards, kind="stable")

    def table(self, chosen: np.ndarray) -> str:
        """A table of some of them, as HTML."""
        rows = [
            [f"{self.rewards[at]:+.2f}", quoted(decode(self.messages[at])), f"{self.counts[at]:,}"]
            for at in chosen.tolist()
        ]
        return table(("reward", "caption", "times"), rows, numbers=(0, 2), kind="fits")


def write_page(
    stage: StageRun, summary: Mapping[str, Any], values: np.ndarray | None, messages: np.ndarray, counts: np.ndarray,
    rewards: np.ndarray, target: np.ndarray, dataset: PairDataset, task: str,
) -> Path:  # fmt: skip
    """Writes `reward/reward.html`, and the reward's part of the report.

    Args:
      stage: the directory.
      summary: the content of statistics.json.
      values: raw reward of every caption; None if the reward reads more than the message. [U]
      messages, counts: the captions, and how often training shows each. [U, 256], [U]
      rewards, target: of the validation pairs. [M, 2], [M]
      dataset: the pairs.
      task: the game's name.
    """
    weights, last = summary["annotators"], summary["history"][-1]
    words = f"learnt from {esc(', '.join(weights))} · {summary['parameters']:,} parameters · epoch {summary['epoch']}"
    body = ["<h1>The reward</h1>", f'<p class="soft">{words}</p>']
    body += _learning(summary["history"], {"new captions": "unseen_accuracy"})
    if "worth" in summary and (words := faithfulness(summary["worth"])):
        body += _worth(summary["worth"], words)
    if len(weights) > 1:
        rows = [[esc(name), f"{weight:.0%}", percent(last[f"accuracy.{name}"])] for name, weight in weights.items()]
        body += ["<h2>Agreement with each annotation</h2>", table(("annotation", "weight", "agreement"), rows, (1, 2))]
    captions = None
    if values is not None:
        statistics, seen = RewardStatistics(**summary["statistics"]), counts > 0
        captions = Captions(statistics, statistics.normalise(values[seen]), messages[seen], counts[seen])
        most_frequent = np.argsort(-captions.counts, kind="stable")[:SHOWN]
        body += [*_captions(captions, SHOWN), "<h3>Most frequent</h3>", captions.table(most_frequent)]
    body += ["<h2>Calibration</h2>", _calibration(rewards, target)]
    path = stage.path / "reward.html"
    text = page(TITLE, body)
    write_whole(path, lambda file: file.write(text.encode("utf-8", "replace")))
    report_reward(stage, summary, captions, dataset, task)
    return path


def report_reward(
    stage: StageRun, summary: Mapping[str, Any], captions: Captions | None, dataset: PairDataset | None, task: str
) -> None:
    """Writes the part of the report: accuracy and loss, spread of the rewards, best and worst captions.

    Args:
      stage: the directory.
      summary: the content of statistics.json.
      captions: None if the reward reads more than the message, or was imported.
      dataset: the pairs; None if the reward was imported.
      task: the game's name.
    """
    last, likes = None, None
    words, body = ["imported", f"epoch {summary['epoch']}"], list[str]()
    if summary["history"]:
        last = summary["history"][-1]
        words = [f"from {esc(', '.join(summary['annotators']))}", words[1], f"{summary['parameters']:,} parameters"]
        words.append('<a href="../reward/reward.html">details</a>')
        body += _learning(summary["history"])
    if captions:
        body += _captions(captions, IN_REPORT)
        likes = captions.table(captions.by_reward()[::-1][:LIKED])
    stage.section(TITLE, f'<p class="soft">{" · ".join(words)}</p>', *body)
    head = Head(subject="A reward", without_aim="of moments of a game", likes=likes, agreement=_accuracy(last or {}),
                machine=summary.get("machine"), made=date_of(time.time()))  # fmt: skip
    if last and dataset is not None:
        judged = _judges(stage, list(summary["annotators"]), dataset)
        goals = ", ".join(dict.fromkeys(one.goal for one in judged if one.goal))
        head = dataclasses.replace(head, asked=f"{sentence(judged, len(dataset))} {_worth_in_words(last)}", goal=goals,
                                   aim=aim_of(goals, task),
                                   judge=" and ".join(dict.fromkeys(str(one.judge) for one in judged)))  # fmt: skip
    stage.report(head)


def _judges(stage: StageRun, names: list[str], dataset: PairDataset) -> list[Head]:
    """The heads of the report for these annotations; writes a part about those that were made elsewhere."""
    heads, judges, elsewhere = Run(stage.workdir).heads(), [], []
    for name in names:
        if (head := heads.get(("annotate", name))) is None:
            codes = np.bincount(np.asarray(dataset.preference(name)), minlength=len(Preference))
            counts = {kind.name.lower(): int(codes[kind]) for kind in Preference}
            elsewhere += [f"<h3>{esc(name)}</h3>", '<p class="soft">made elsewhere</p>', label_bar(counts)]
            head = Head(judge=f"<b>the annotation {esc(name)}</b>", judged=len(dataset))
        judges.append(head)
    if elsewhere:
        stage.section(PREFERENCES, *elsewhere)
    return judges


def _worth_in_words(last: Mapping[str, Any]) -> str:
    """A sentence on the accuracy of the reward, as HTML."""
    if not last["sided"]:
        return "None of the pairs that were set aside has a preference, so the reward was not tested."
    agrees = f"agrees with <b>{percent(last['accuracy'])}</b> of {esc(preferences(last))}: {esc(verdict(last))}"
    return f"The reward learnt from it {agrees}."


def _accuracy(last: Mapping[str, Any]) -> str:
    """The accuracy of the reward with its verdict, as HTML; a dash if it was not measured."""
    worth = f"of {esc(preferences(last))}: {esc(verdict(last))}"
    return percent(last.get("accuracy")) + (f"<br><small class=soft>{worth}</small>" if last.get("sided") else "")


def _learning(history: list[dict[str, Any]], extra_lines: Mapping[str, str] = {}) -> list[str]:
    """Accuracy and loss, as HTML; `extra_lines`: names of further accuracies, by their labels."""
    last = history[-1]
    figures = [(percent(last["accuracy"]), f"agrees with its own labels, {preferences(last)}: {verdict(last)}")]
    if last["unseen_sided"]:
        unseen = f"right of the {last['unseen_sided']:,} with a caption never seen in training"
        figures.append((percent(last["unseen_accuracy"]), unseen))
    if not math.isnan(last.get("score_accuracy", math.nan)):
        figures.append((percent(last["score_accuracy"]), "of the pairs: prefers the higher score"))
    figures.append((f"{last['loss']:.3f}", "validation loss; 0.693 is chance"))

    def line(name: str, scale: float = 1.0) -> list[tuple[float, float]]:
        return [(row["epoch"], scale * row[name]) for row in history if row.get(name) is not None]

    accuracy = {"validation": line("accuracy", 100), "training": line("train_accuracy", 100)}
    accuracy |= {words: line(name, 100) for words, name in extra_lines.items()}
    loss = {"validation": line("loss"), "training": line("train_loss")}
    charts = [
        curves(accuracy, "epochs", high=100.0, title="Agreement with its own labels", note="% of preferences"),
        curves(loss, "epochs", title="Loss", note="0.693 is chance"),
    ]
    return [tiles(figures), f'<div class="charts">{"".join(charts)}</div>']


def _captions(captions: Captions, shown: int) -> list[str]:
    """Distribution of the captions' rewards, and the `shown` best and worst, as HTML."""
    statistics, order = captions.statistics, captions.by_reward()
    usual = statistics.quantile(USUAL)
    zero = "mean 0" if statistics.anchor is None else "0 for a moment without a message"
    levels = ", ".join(f"{level:.0%} below {statistics.quantile(level):.2f}" for level in THRESHOLDS)
    heights, edges = (array.tolist() for array in np.histogram(captions.rewards, bins=BINS))
    low, high = edges[0], edges[-1]
    marks = [((usual - low) / (high - low), f"{USUAL:.0%} lie below {usual:.2f}")] if low <= usual <= high else []
    words = [f"{edge:.1f}" for edge in (low, (low + high) / 2, high)]
    of = [f"{start:.2f} to {stop:.2f}" for start, stop in itertools.pairwise(edges)]
    most, least = captions.table(order[::-1][:shown]), captions.table(order[:shown])
    return [
        "<h3>Distribution</h3>",
        columns(heights, words, marks, of, root=True),
        f'<p class="soft">{len(order):,} different captions by normalised reward ({zero}, variance 1 over '
        f"all moments; heights are square roots): {levels}. By default, rewards below {usual:.2f} ({USUAL:.0%} of "
        "them) count as 0 for the agent.</p>",
        f'<div class="pair"><div><h3>Likes most</h3>{most}</div><div><h3>Likes least</h3>{least}</div></div>',
    ]


def faithfulness(worth: Mapping[str, Any]) -> str:
    """A sentence on the agreement of the reward with the worth by the rules (`compare_with_worth`); "" if unknown."""
    if worth["linear"] != worth["linear"]:
        return ""
    paid = f", and small worths are paid {worth['inflation']:.2f} times their share (median)"
    return (
        f"on {worth['captions']:,} captions that training never saw, the correlation of the reward with the worth to "
        f"the rules is {worth['linear']:.3f}, that of their ranks {worth['rank']:.3f}"
        f"{paid if worth['inflation'] == worth['inflation'] else ''}"
    )


def _worth(worth: Mapping[str, Any], words: str) -> list[str]:
    """HTML blocks: what captions of each worth are paid, as a share of what the best are paid."""
    levels = worth["levels"]
    body = ["<h2>Against the worth to the rules</h2>", f'<p class="soft">{esc(words[0].upper() + words[1:])}.</p>']
    if not levels:
        return body
    rows = [[f"{row['worth']:g}", f"{row['due']:.2f}", f"{row['share']:.2f}", f"{row['captions']:,}"] for row in levels]
    return [
        *body,
        table(("worth", "share due", "share paid", "captions"), rows, numbers=(0, 1, 2, 3)),
        '<p class="soft">Shares are of what the best captions are worth and are paid; a moment without a message is 0.'
        "</p>",
    ]


def _calibration(rewards: np.ndarray, target: np.ndarray) -> str:
    bins = calibration(rewards, target)
    rows = [[f"{row['predicted']:.2f}", f"{row['stated']:.2f}", f"{row['pairs']:,}"] for row in bins]
    lines = {"this reward": [(row["predicted"], row["stated"]) for row in bins], "perfect": [(0.0, 0.0), (1.0, 1.0)]}
    words = ("predicted P(second is better)", "stated by the annotator", "pairs")
    return curves(lines, "predicted P(second is better)", 0.0, 1.0) + table(words, rows, numbers=(0, 1, 2))


def preferences(row: Mapping[str, Any]) -> str:
    """The number of validation preferences behind an accuracy, and of the different questions among them, in words."""
    number, asked = row.get("sided", 0), row.get("questions", 0)
    of = f" ({asked:,} different question{'s' * (asked != 1)})" if asked else ""
    return f"{number:,} validation preference{'s' * (number != 1)}{of}"


def verdict(row: Mapping[str, Any]) -> str:
    """The 95 % interval of an accuracy, and whether it is above chance, in words.

    Chance is one half even if most preferences are for one side, because a reward does not know a moment's side.
    """
    if not row.get("sided"):
        return "no evidence that it is better than chance"
    low, high = row["accuracy_low"], row["accuracy_high"]
    word = "no better than chance, which is 50 %" if low <= 0.5 else "chance is 50 %"
    return f"95 % interval {low:.1%} to {high:.1%}, {word}"


def percent(value: float | None) -> str:
    """Formats a share as a percentage, or as a dash if it is None or NaN."""
    return "–" if value is None or value != value else f"{value:.1%}"
