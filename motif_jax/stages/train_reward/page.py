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
from typing import Any

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


def write_page(
    stage: StageRun,
    facts: dict[str, Any],
    statistics: RewardStatistics,
    values: np.ndarray | None,
    messages: np.ndarray,
    counts: np.ndarray,
    rewards: np.ndarray,
    target: np.ndarray,
    dataset: PairDataset,
    task: str,
) -> Path:
    """Writes `reward/reward.html`, and the reward's part of the report.

    Args:
      stage: the directory.
      facts: the contents of statistics.json.
      values: raw reward of every caption; None if the reward reads more than the message. [U]
      messages, counts: the captions, and how often training shows each. [U, 256], [U]
      rewards, target: of the validation pairs. [M, 2], [M]
      dataset: the pairs.
      task: the game's name.
    """
    last, history = facts["history"][-1], facts["history"]
    body = [
        "<h1>The reward</h1>",
        f'<p class="soft">learnt from {esc(", ".join(facts["annotators"]))} · {facts["parameters"]:,} parameters · '
        f"epoch {facts['epoch']}</p>",
        *_learning(history, {"new captions": "unseen_accuracy"}),
    ]
    if words := faithfulness(facts.get("worth", {"linear": float("nan")})):
        body += _worth(facts["worth"], words)
    agreement = {name.partition(".")[2]: value for name, value in last.items() if name.startswith("accuracy.")}
    if agreement:
        rows = [[esc(name), f"{facts['annotators'][name]:.0%}", percent(value)] for name, value in agreement.items()]
        body += ["<h2>Agreement with each annotation</h2>", table(("annotation", "weight", "agreement"), rows, (1, 2))]
    captions = None
    if values is not None:
        captions = of_captions(statistics, statistics.normalise(values), messages, counts)
        body += _captions(captions, SHOWN)
        body += ["<h3>Most frequent</h3>", _liked(captions["common"])]
    body += ["<h2>Calibration</h2>", _calibration(rewards, target)]
    path = stage.path / "reward.html"
    text = page(TITLE, body)
    write_whole(path, lambda file: file.write(text.encode("utf-8", "replace")))
    report_reward(stage, facts, captions, dataset, task)
    return path


def report_reward(
    stage: StageRun, facts: dict[str, Any], captions: dict[str, Any] | None, dataset: PairDataset | None, task: str
) -> None:
    """Writes the part of the report: accuracy and loss, spread of the rewards, best and worst captions.

    `facts`: the contents of statistics.json. `captions`: the result of `of_captions`, if messages alone decide.
    """
    words = [f"from {esc(', '.join(facts['annotators']))}"] if facts["annotators"] else ["imported"]
    words += [f"epoch {facts['epoch']}", *([f"{facts['parameters']:,} parameters"] if "parameters" in facts else [])]
    words += ['<a href="../reward/reward.html">details</a>'] if facts["history"] else []
    body = [f'<p class="soft">{" · ".join(words)}</p>']
    body += _learning(facts["history"]) if facts["history"] else []
    body += _captions(captions, IN_REPORT) if captions else []
    stage.section(TITLE, *body)
    last = facts["history"][-1] if facts["history"] else {}
    likes = _liked(captions["most"][:LIKED]) if captions else None
    head = Head(subject="A reward", without_aim="of moments of a game", likes=likes, agreement=_accuracy(last),
                machine=facts.get("machine"), made=date_of(time.time()))  # fmt: skip
    if dataset is not None:
        judged = _judges(stage, list(facts["annotators"]), dataset)
        goals = ", ".join(dict.fromkeys(one.goal for one in judged if one.goal))
        asked = f"{sentence(judged, len(dataset))} {_worth_in_words(last)}"
        head = dataclasses.replace(head, asked=asked.strip(), goal=goals, aim=aim_of(goals, task),
                                   judge=" and ".join(dict.fromkeys(str(one.judge) for one in judged)))  # fmt: skip
    stage.report(head)


def _judges(stage: StageRun, names: list[str], dataset: PairDataset) -> list[Head]:
    """What the report says of these annotations; writes a part about those that were made elsewhere."""
    heads, found, elsewhere = Run(stage.workdir).heads(), [], []
    for name in names:
        if (head := heads.get(("annotate", name))) is None:
            codes = np.bincount(np.asarray(dataset.preference(name)), minlength=len(Preference))
            counts = {kind.name.lower(): int(codes[kind]) for kind in Preference}
            elsewhere += [f"<h3>{esc(name)}</h3>", '<p class="soft">made elsewhere</p>', label_bar(counts)]
            head = Head(judge=f"<b>the annotation {esc(name)}</b>", judged=len(dataset))
        found.append(head)
    if elsewhere:
        stage.section(PREFERENCES, *elsewhere)
    return found


def _worth_in_words(last: Mapping[str, Any]) -> str:
    """A sentence on the accuracy of the reward, as HTML; "" if it was not measured."""
    if last.get("sided"):
        agrees = f"agrees with <b>{percent(last['accuracy'])}</b> of {esc(preferences(last))}: {esc(verdict(last))}"
        return f"The reward learnt from it {agrees}."
    return "None of the pairs that were set aside has a preference, so the reward was not tested." if last else ""


def _accuracy(last: Mapping[str, Any]) -> str:
    """The accuracy of the reward with its verdict, as HTML; a dash if it was not measured."""
    worth = f"of {esc(preferences(last))}: {esc(verdict(last))}"
    return percent(last.get("accuracy")) + (f"<br><small class=soft>{worth}</small>" if last.get("sided") else "")


def _learning(history: list[dict[str, Any]], more: Mapping[str, str] = {}) -> list[str]:
    """Accuracy and loss, as HTML; `more`: names of accuracies to draw beside the usual ones."""
    last = history[-1]
    figures = [(percent(last.get("accuracy")), f"agrees with its own labels, {preferences(last)}: {verdict(last)}")]
    if last.get("unseen_sided"):
        unseen = f"right of the {last['unseen_sided']:,} with a caption never seen in training"
        figures.append((percent(last.get("unseen_accuracy")), unseen))
    if not math.isnan(last.get("score_accuracy", math.nan)):
        figures.append((percent(last["score_accuracy"]), "of the pairs: prefers the higher score"))
    figures.append((f"{last['loss']:.3f}", "validation loss; 0.693 is chance"))

    def line(name: str, scale: float = 1.0) -> list[tuple[float, float]]:
        return [(row["epoch"], scale * row[name]) for row in history if row.get(name) is not None]

    accuracy = {"validation": line("accuracy", 100), "training": line("train_accuracy", 100)}
    accuracy |= {words: line(name, 100) for words, name in more.items()}
    loss = {"validation": line("loss"), "training": line("train_loss")}
    charts = [
        curves(accuracy, "epochs", high=100.0, title="Agreement with its own labels", note="% of preferences"),
        curves(loss, "epochs", title="Loss", note="0.693 is chance"),
    ]
    return [tiles(figures), f'<div class="charts">{"".join(charts)}</div>']


def _captions(captions: dict[str, Any], shown: int) -> list[str]:
    """Distribution of the captions' rewards, and the `shown` best and worst, as HTML."""
    usual = captions["thresholds"][f"{USUAL:.2f}"]
    zero = "0 for a moment without a message" if captions["anchored"] else "mean 0"
    levels = ", ".join(f"{float(level):.0%} below {value:.2f}" for level, value in captions["thresholds"].items())
    heights, edges = captions["heights"], captions["edges"]
    low, high = edges[0], edges[-1]
    marks = [((usual - low) / (high - low), f"{USUAL:.0%} lie below {usual:.2f}")] if low <= usual <= high else []
    words = [f"{edge:.1f}" for edge in (low, (low + high) / 2, high)]
    of = [f"{start:.2f} to {stop:.2f}" for start, stop in itertools.pairwise(edges)]
    most, least = _liked(captions["most"][:shown]), _liked(captions["least"][:shown])
    return [
        "<h3>Distribution</h3>",
        columns(heights, words, marks, of, root=True),
        f'<p class="soft">{captions["captions"]:,} different captions by normalised reward ({zero}, variance 1 over '
        f"all moments; heights are square roots): {levels}. By default, rewards below {usual:.2f} ({USUAL:.0%} of "
        "them) count as 0 for the agent.</p>",
        f'<div class="pair"><div><h3>Likes most</h3>{most}</div><div><h3>Likes least</h3>{least}</div></div>',
    ]


def _liked(rows: list[dict[str, Any]]) -> str:
    """A table of captions with their rewards, as HTML."""
    cells = [[f"{row['reward']:+.2f}", quoted(row["caption"]), f"{row['times']:,}"] for row in rows]
    return table(("reward", "caption", "times"), cells, numbers=(0, 2), kind="fits")


def of_captions(
    statistics: RewardStatistics, normalised: np.ndarray, messages: np.ndarray, counts: np.ndarray
) -> dict[str, Any]:
    """Normalised rewards of captions: distribution, highest, lowest, and those of the most frequent captions."""
    seen = np.flatnonzero(counts > 0)
    order = seen[np.argsort(normalised[seen], kind="stable")]
    common = seen[np.argsort(-counts[seen], kind="stable")]
    heights, edges = np.histogram(normalised[seen], bins=BINS)

    def shown(chosen: np.ndarray) -> list[dict[str, Any]]:
        return [
            {"reward": float(normalised[at]), "caption": decode(messages[at]), "times": int(counts[at])}
            for at in chosen[:SHOWN].tolist()
        ]

    return {
        "captions": len(seen),
        "anchored": statistics.anchor is not None,
        "heights": heights.tolist(),
        "edges": edges.tolist(),
        "thresholds": {f"{level:.2f}": statistics.quantile(level) for level in THRESHOLDS},
        "most": shown(order[::-1]),
        "least": shown(order),
        "common": shown(common),
    }


def faithfulness(worth: Mapping[str, Any]) -> str:
    """How well the reward agrees with the worth that the rules give (`compare_with_worth`); "" if nothing shows it."""
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
        return "nothing shows that it is better than chance"
    low, high = row["accuracy_low"], row["accuracy_high"]
    word = "no better than chance, which is 50 %" if low <= 0.5 else "chance is 50 %"
    return f"95 % interval {low:.1%} to {high:.1%}, {word}"


def percent(value: float | None) -> str:
    """Formats a share as a percentage, or as a dash if it is None or NaN."""
    return "–" if value is None or value != value else f"{value:.1%}"
