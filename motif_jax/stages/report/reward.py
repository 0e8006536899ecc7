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
    words = [f"from {esc(', '.join(learnt.annotators))}"] if learnt.annotators else ["imported"]
    words.append(f"epoch {learnt.epoch}")
    if learnt.parameters:
        words.append(f"{learnt.parameters:,} parameters")
    if learnt.page:
        words.append(f'<a href="{esc(learnt.page)}">details</a>')
    body = [f'<p class="soft">{" · ".join(words)}</p>']
    if learnt.history:
        body += _learning(learnt.history)
    if learnt.captions:
        body += _captions(learnt, learnt.captions, training.settings if training else {})
    return body


def _learning(history: list[dict[str, Any]]) -> list[str]:
    last = history[-1]
    figures = [(percent(last.get("accuracy")), f"agrees with its own labels, {preferences(last)}: {verdict(last)}")]
    if last.get("unseen_sided"):
        unseen = f"right of the {last['unseen_sided']:,} with a caption never seen in training"
        figures.append((percent(last.get("unseen_accuracy")), unseen))
    if "score_accuracy" in last:
        figures.append((percent(last["score_accuracy"]), "of the pairs: prefers the higher score"))
    figures.append((f"{last['loss']:.3f}", "validation loss; 0.693 is chance"))

    def line(name: str) -> list[tuple[float, float]]:
        return [(row["epoch"], 100 * row[name]) for row in history if name in row]

    accuracy = {"validation": line("accuracy"), "training": line("train_accuracy")}
    loss = {
        "validation": [(row["epoch"], row["loss"]) for row in history],
        "training": [(row["epoch"], row["train_loss"]) for row in history if "train_loss" in row],
    }
    charts = [
        curves(accuracy, "epochs", high=100.0, title="Agreement with its own labels", note="% of preferences"),
        curves(loss, "epochs", title="Loss", note="0.693 is chance"),
    ]
    return [tiles(figures), f'<div class="charts">{"".join(charts)}</div>']


def threshold(learnt: Learnt, facts: dict[str, Any], level: float) -> float:
    """The quantile `level` of the normalised reward over captions, interpolated between known levels."""
    known = learnt.quantiles or {float(name): value for name, value in facts["thresholds"].items()}
    levels = sorted(known)
    return float(np.interp(level, levels, [known[one] for one in levels]))


def _captions(learnt: Learnt, facts: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """Distribution and extremes of the captions' rewards, as HTML; `settings` are the policy's, empty if not known."""
    rewards = rewards_of(settings)
    used = not rewards or SOURCES[LEARNT].words in rewards
    own = used and "threshold_quantile" in settings and not settings.get("reward_dir")  # else of another one
    level = settings["threshold_quantile"] if own else USUAL
    known = learnt.quantiles or facts["thresholds"]
    mark = (level, threshold(learnt, facts, level)) if level >= 0 and known else None
    below = f"below {mark[1]:.2f} ({level:.0%} of them) count as 0 for the agent." if mark else ""
    rule = f" Rewards {below}" if own and below else f" By default, rewards {below}" if below else ""
    zero = "0 for a moment without a message" if facts["anchored"] else "mean 0"
    marks = ", ".join(f"{float(level):.0%} below {value:.2f}" for level, value in facts["thresholds"].items())
    return [
        "<h3>Distribution</h3>",
        spread(facts, mark),
        f'<p class="soft">{facts["captions"]:,} different captions by normalised reward ({zero}, variance 1 over '
        f"all moments; heights are square roots): {marks}.{rule}</p>",
        f'<div class="pair"><div><h3>Likes most</h3>{liked(facts["most"][:SHOWN])}</div>'
        f"<div><h3>Likes least</h3>{liked(facts['least'][:SHOWN])}</div></div>",
    ]


def liked(rows: list[dict[str, Any]]) -> str:
    """A table of captions with their rewards, as HTML."""
    cells = [[f"{row['reward']:+.2f}", quoted(row["caption"]), f"{row['times']:,}"] for row in rows]
    return table(("reward", "caption", "times"), cells, numbers=(0, 2), kind="fits")
