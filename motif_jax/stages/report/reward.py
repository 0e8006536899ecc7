"""The report's part on the learnt reward."""

from __future__ import annotations

from typing import Any

import numpy as np

from motif_jax.pages.blocks import quoted, table, tiles
from motif_jax.pages.charts import curves
from motif_jax.pages.formats import esc
from motif_jax.rewards.choice import LEARNT, SOURCES
from motif_jax.stages.report.head import rewards_of
from motif_jax.stages.report.parts import Learnt, Training
from motif_jax.stages.train_reward.page import USUAL, percent, preferences, spread, verdict

SHOWN = 12  # captions at either end


def of_reward(learnt: Learnt, training: Training | None) -> list[str]:
    """The part on the reward, as HTML: accuracy and loss, spread of the rewards, best and worst captions."""
    words = [f"from {esc(', '.join(learnt.annotators))}"] if learnt.annotators else ["taken over from elsewhere"]
    words.append(f"epoch {learnt.epoch}")
    if learnt.parameters:
        words.append(f"{learnt.parameters:,} parameters")
    if learnt.page:
        words.append(f'<a href="{esc(learnt.page)}">all about it</a>')
    body = [f'<p class="soft">{" · ".join(words)}</p>']
    if learnt.history:
        body += _learning(learnt.history)
    if learnt.captions:
        body += _captions(learnt, learnt.captions, training.settings if training else {})
    return body


def _learning(history: list[dict[str, Any]]) -> list[str]:
    last = history[-1]
    figures = [(percent(last.get("accuracy")), f"of {preferences(last)} right: {verdict(last)}")]
    if last.get("unseen_sided"):
        unseen = f"right of the {last['unseen_sided']:,} with a caption never seen in training"
        figures.append((percent(last.get("unseen_accuracy")), unseen))
    if "score_accuracy" in last:
        figures.append((percent(last["score_accuracy"]), "of the pairs: prefers the higher score"))
    figures.append((f"{last['loss']:.3f}", "validation loss; 0.693 knows nothing"))

    def line(name: str) -> list[tuple[float, float]]:
        return [(row["epoch"], 100 * row[name]) for row in history if name in row]

    accuracy = {"validation": line("accuracy"), "training": line("train_accuracy")}
    loss = {
        "validation": [(row["epoch"], row["loss"]) for row in history],
        "training": [(row["epoch"], row["train_loss"]) for row in history if "train_loss" in row],
    }
    charts = [
        curves(accuracy, "epochs", high=100.0, title="Accuracy", note="% of preferences"),
        curves(loss, "epochs", title="Loss", note="0.693 knows nothing"),
    ]
    return [tiles(figures), f'<div class="charts">{"".join(charts)}</div>']


def threshold(learnt: Learnt, told: dict[str, Any], level: float) -> float:
    """The normalised reward below which the share `level` of the captions lies; interpolated between known levels."""
    known = learnt.quantiles or {float(name): value for name, value in told["thresholds"].items()}
    levels = sorted(known)
    return float(np.interp(level, levels, [known[one] for one in levels]))


def _captions(learnt: Learnt, told: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """Spread and extremes of the captions, as HTML; `settings` are the policy's, empty if not known."""
    rewards = rewards_of(settings)
    used = not rewards or SOURCES[LEARNT].words in rewards
    own = used and "threshold_quantile" in settings and not settings.get("reward_dir")  # else of another reward
    level = settings["threshold_quantile"] if own else USUAL
    mark = (level, threshold(learnt, told, level)) if level >= 0 and (learnt.quantiles or told["thresholds"]) else None
    below = f"below {mark[1]:.2f} ({level:.0%} of them) is worth nothing to the agent." if mark else ""
    rule = f" What lies {below}" if own and below else f" By default, what lies {below}" if below else ""
    zero = "0 for a moment without a message" if told["anchored"] else "mean 0"
    marks = ", ".join(f"{float(level):.0%} below {value:.2f}" for level, value in told["thresholds"].items())
    return [
        "<h3>How it is spread</h3>",
        spread(told, mark),
        f'<p class="soft">{told["captions"]:,} different captions by normalised reward ({zero}, variance 1 over '
        f"all moments; heights are square roots): {marks}.{rule}</p>",
        f'<div class="pair"><div><h3>Likes most</h3>{liked(told["most"][:SHOWN])}</div>'
        f"<div><h3>Likes least</h3>{liked(told['least'][:SHOWN])}</div></div>",
    ]


def liked(rows: list[dict[str, Any]]) -> str:
    """A table of captions with their rewards, as HTML."""
    cells = [[f"{row['reward']:+.2f}", quoted(row["caption"]), f"{row['times']:,}"] for row in rows]
    return table(("reward", "caption", "times"), cells, numbers=(0, 2), kind="fits")
