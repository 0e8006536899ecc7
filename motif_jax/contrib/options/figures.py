"""What each option did in training: its share of the time, the length of its turns, and what they earned."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.actors.acting import Arrays, RolloutBatch
from motif_jax.console import print_line
from motif_jax.contrib.options.acting import Options
from motif_jax.contrib.options.plan import CONTROLLER_FLAG, GAME, LENGTH_FLAG, OptionPlan
from motif_jax.contrib.options.sections import MIXTURES, OPTIONS
from motif_jax.learner.acting import CHOOSER
from motif_jax.pages.blocks import Block, Box, Heading, Paragraph, Span, Table, Text
from motif_jax.pages.charts import Curves
from motif_jax.policies.checkpoints import TrainingProgress
from motif_jax.run import CONFIG, read_record
from motif_jax.stages.train_policy.hooks import Figures, Rows, TrainingHook, Watched, Words
from motif_jax.stages.train_policy.page import listed

UNPAID = 1_000_000  # steps without a reward, after which a message says so


class OptionFigures(TrainingHook):
    """Adds figures of each option to the metrics, and says once if the controller receives no reward."""

    def __init__(self, plan: OptionPlan):
        self._plan = plan
        self._turns: list[np.ndarray] = []
        self._unpaid: int | None = 0  # steps until the controller was paid; None: it was, or the message was printed

    @classmethod
    def begin(cls, watched: Watched) -> TrainingHook:
        acting, length = watched.model.acting, watched.config.policy.rollout_length
        if not isinstance(acting, Options):
            return TrainingHook()
        if (longest := max(acting.plan.lengths)) > length:
            print_line(
                f"train_policy: turns of up to {longest} steps are longer than a rollout; the controller's value at "
                f"its end stands for the rest ({LENGTH_FLAG}, --config.policy.rollout_length)"
            )
        return cls(acting.plan)

    def keep(self, arrays: Arrays, rewards: Mapping[str, np.ndarray]) -> np.ndarray:
        return turn_figures(self._plan, arrays, rewards)

    def after_update(self, done: TrainingProgress, params: Any, batch: RolloutBatch, kept: np.ndarray) -> None:
        self._turns.append(kept)
        if self._unpaid is None:
            return
        self._unpaid = None if kept[:, -1].any() else self._unpaid + int(batch.arrays.played.sum())
        if self._unpaid is not None and self._unpaid >= UNPAID:
            self._unpaid = None  # said once
            print_line(f"train_policy: the controller received no reward in {UNPAID:,} steps ({CONTROLLER_FLAG})")

    def figures(self) -> Figures:
        turns, self._turns = self._turns, []
        return add_up(turns, self._plan.names)

    @staticmethod
    def page(folder: Path, rows: Rows) -> list[Block]:
        """The time and rewards of each option."""
        rows = [row for row in rows if any(name.startswith("option/") for name in row)]
        return _blocks(rows, _settings(folder)["controller_chooses"] == MIXTURES) if rows else []

    @staticmethod
    def words(folder: Path, rows: Rows) -> Words | None:
        if not (names := option_names(rows)):
            return None
        named, settings = listed(names), _settings(folder)
        words = [f"options {settings['rewards']}", f"controller {settings['controller']}"]
        words += ["the controller mixes the options"] if settings["controller_chooses"] == MIXTURES else []
        rewarded = f"has the options {named}, each with a reward of its own. It was "
        return Words(f"An agent that chooses between {named}", rewarded, words)


def _settings(folder: Path) -> Mapping[str, Any]:
    """The values of the section that the training was made with, by name."""
    return {key.removeprefix(f"{OPTIONS}."): value for key, value in read_record(folder / CONFIG).items()}


def turn_figures(plan: OptionPlan, arrays: Mapping[str, np.ndarray], rewards: Mapping[str, np.ndarray]) -> np.ndarray:
    """Sums over a batch, a row for each of K options; a mixture counts for each option by its coefficient. [K, K + 3]

    The columns: steps of the games while the option was in charge; turns that it began; what its turns earned in the
    reward of each option and of the controller. `arrays`: CHOOSER, `option` and `reward`; `rewards`: of each source,
    without coefficient. [T, B] each
    """
    charge, count = arrays[CHOOSER], plan.controller
    names = (GAME, *(choice.name for choice in plan.sources))
    paid = (arrays["reward"] if name == GAME else rewards[name] for name in names)
    by = [np.bincount(charge.ravel(), one.ravel(), minlength=count + 1)[:count] for one in paid]
    steps = np.bincount(charge.ravel(), minlength=count + 1)[:count]
    begun = np.bincount(arrays["option"][charge == plan.controller], minlength=count)
    weights = plan.weights.T
    return np.column_stack([weights @ steps, weights @ begun, weights @ np.stack(by, -1) @ plan.factors.T])


def add_up(figures: Sequence[np.ndarray], names: tuple[str, ...]) -> dict[str, float]:
    """A row of metrics.jsonl: shares, mean lengths and earnings per step, by option."""
    if not figures:
        return {}
    steps, turns, *earned = np.sum(figures, 0).T
    row: dict[str, float] = {}
    for number, name in enumerate(names):
        row[f"option/{name}/share"] = float(steps[number] / (steps.sum() or 1))
        row[f"option/{name}/length"] = float(steps[number] / (turns[number] or 1))
        for what, sums in zip((*names, "controller"), earned, strict=True):
            row[f"option/{name}/earns/{what}"] = float(sums[number] / (steps[number] or 1))
    return row


def option_names(rows: Rows) -> list[str]:
    """The names of the policy's options; [] without options."""
    matches = (re.fullmatch("option/(.+)/earns/.+", name) for row in rows for name in row if name.startswith("option/"))
    return list(dict.fromkeys(match[1] for match in matches if match))


def _blocks(rows: Rows, mixed: bool) -> list[Block]:
    last, names = rows[-1], option_names(rows)
    earnings = (re.fullmatch("option/.+/earns/(.+)", name) for name in last)
    kinds = list(dict.fromkeys(match[1] for match in earnings if match))

    def over_time(what: str) -> dict[str, list[tuple[float, float]]]:
        return {name: [(row["env_steps"], row[f"option/{name}/{what}"]) for row in rows] for name in names}

    best = {kind: max(abs(last[f"option/{name}/earns/{kind}"]) for name in names) or 1.0 for kind in kinds}
    cells = list[list[Text]]()
    for name in names:
        earned = [(last[f"option/{name}/earns/{kind}"], best[kind]) for kind in kinds]
        shaded = [Span(f"{value:.4f}", shade=max(value, 0.0) / most * 0.35) for value, most in earned]
        cells.append([
            name, f"{last[f'option/{name}/share']:.1%}", f"{last[f'option/{name}/length']:.1f}", *shaded
        ])  # fmt: skip
    meaning = " A mixture counts for each of its options by its coefficient." if mixed else ""
    charts = [
        Curves(over_time("share"), "steps", 0.0, 1.0, title="share of the time", note="in charge"),
        Curves(over_time("length"), "steps", 0.0, title="length of a turn", note="game steps"),
    ]
    head = ["in charge", "of the time", "steps per turn", *(f"earns for {kind}" for kind in kinds)]
    words = (
        "The last figures of training. Each row shows what an option earned per step while it was in charge, in the "
        f"reward of each option and of the controller.{meaning}"
    )
    return [
        Heading("Options"),
        Paragraph(words, "soft"),
        Table(head, cells, range(1, len(head)), kind="fits"),
        Box(charts, "charts"),
    ]
