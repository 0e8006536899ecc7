"""Audits of the online reward during training: which captions it rewarded in recent episodes (judge.py has the checks).

Only the games of the first host are audited. `policy/audit.jsonl` has one row for each audit. A resumed run begins with
new games, so it begins with new episodes here, too.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.actors.acting import Arrays, Group, RolloutBatch
from motif_jax.captions import decode
from motif_jax.console import clean, print_line
from motif_jax.contrib.audit.findings import Steps, findings_blocks
from motif_jax.contrib.audit.judge import audit_in_flight
from motif_jax.contrib.audit.sections import AuditSection
from motif_jax.files import json_line, keep_lines, read_lines
from motif_jax.pages.blocks import Block, Box, Heading, Paragraph, Table
from motif_jax.pages.charts import Curves
from motif_jax.pages.figures import curve
from motif_jax.policies.checkpoints import TrainingProgress
from motif_jax.rewards.online.source import OnlineSource
from motif_jax.rewards.registry import ONLINE
from motif_jax.stages.train_policy.hooks import Figures, Rows, TrainingHook, Watched

AUDITS = "audit.jsonl"  # in the policy's directory
AUDITED = 100  # episodes that are looked at
MOST_PAID = 1_000_000  # paid steps in memory
TOLD = 3  # findings of one audit in the terminal
METRIC = f"reward/{ONLINE}_audit_"  # of rows of metrics
WORTHS = {1.0: "better than nothing", 0.0: "neutral", -1.0: "worse than nothing", None: "no label"}


class Episodes:
    """The paid steps of the last episodes that ended, and of those that are open."""

    def __init__(self) -> None:
        self.ended: collections.deque[int] = collections.deque(maxlen=AUDITED)  # numbers of episodes, which ascend
        self._last: dict[Group, np.ndarray] = {}  # each game's last episode. [E]
        nothing = np.zeros(0, np.int64)
        self._steps = [Steps(nothing, nothing, nothing.astype(np.float32))]  # by rollout
        self._next = self._kept = 0  # number for the next episode; number of steps in `_steps`

    def add(self, batch: RolloutBatch, caption: np.ndarray, pay: np.ndarray) -> None:
        """Adds the steps of a batch; captions below 0 are left out. [T, B] each"""
        for group, columns in batch.columns():
            first, ended = batch.arrays.first[columns], batch.arrays.ended[:, columns]
            before = np.cumsum(ended, 0) - ended  # episodes that ended before each step. [T, E]
            begun = self._next + before * len(first) + np.arange(len(first))
            goes_on = (before == 0) & ~first  # an episode that an earlier rollout began
            episode = np.where(goes_on, self._last.get(group, begun[0]), begun)
            self._last[group] = episode[-1]
            self._next += ended.size
            self.ended.extend(episode[ended].tolist())
            paid = caption[:, columns] >= 0
            if paid.any():
                self._steps.append(Steps(episode[paid], caption[:, columns][paid], pay[:, columns][paid]))
                self._kept += len(self._steps[-1].pay)
        if self._kept > MOST_PAID:
            self._forget()

    def _forget(self) -> None:
        """Drops the steps of earlier episodes, and the oldest steps beyond half of MOST_PAID."""
        steps = Steps(*map(np.concatenate, zip(*self._steps, strict=True)))
        wanted = np.isin(steps.episode, np.concatenate([list(self.ended), *self._last.values()]))
        self._steps = [Steps(*(column[wanted][-MOST_PAID // 2 :] for column in steps))]
        self._kept = len(self._steps[0].pay)

    def steps(self) -> Steps:
        """The paid steps of the ended episodes. Episodes without pay have the first numbers, so that they count."""
        self._forget()
        (steps,) = self._steps
        paid = np.intersect1d(steps.episode, self.ended)
        own = np.isin(steps.episode, paid)
        first = len(self.ended) - len(paid)
        return Steps(first + np.searchsorted(paid, steps.episode[own]), steps.caption[own], steps.pay[own])


class FlightAudit(TrainingHook):
    """Audits every `audit.every_steps` of a training that is paid by an online reward."""

    def __init__(self, source: OnlineSource, every: int, folder: Path, env_steps: int):
        """Begins after `env_steps`. `every`: steps between audits."""
        self._source, self._every, self._steps, self._file = source, every, env_steps, folder / AUDITS
        self._episodes, self._goal = Episodes(), ""
        self._told: set[str] = set()  # the checks that had findings in the last audit
        self._figures: dict[str, float] = {}

    @classmethod
    def begin(cls, watched: Watched) -> TrainingHook:
        section: AuditSection = watched.config.plugins["audit"]
        source, done = watched.sources.get(ONLINE), watched.done.env_steps
        keep_lines(watched.folder / AUDITS, "env_steps", done)  # also if audits are off now
        if not (section.every_steps and isinstance(source, OnlineSource)):
            return TrainingHook()
        return cls(source, section.every_steps, watched.folder, done)

    def keep(self, arrays: Arrays, rewards: Mapping[str, np.ndarray]) -> np.ndarray:
        """The messages of the steps with a positive online reward. [P, 256]"""
        paid = rewards[ONLINE] > 0
        messages: np.ndarray = arrays[self._source.message][: len(paid)][paid]
        return messages

    def after_update(self, done: TrainingProgress, params: Any, batch: RolloutBatch, kept: np.ndarray) -> None:
        """Takes the steps of a batch, after the source has learnt from it, and audits if it is time."""
        source, pay = self._source, batch.arrays.rewards[ONLINE]
        if source.goal != self._goal:  # the pay so far was for another goal
            self._goal, self._episodes = source.goal, Episodes()
        caption = np.full(pay.shape, -1)
        caption[pay > 0] = source.store.captions.lookup.find(kept)
        self._episodes.add(batch, caption, pay)
        if done.env_steps // self._every > self._steps // self._every:
            self._audit(done.env_steps)
        self._steps = done.env_steps

    def _audit(self, env_steps: int) -> None:
        store, steps = self._source.store, self._episodes.steps()
        rows, places = np.unique(steps.caption, return_inverse=True)
        texts = [decode(message) for message in store.captions.messages[rows]]
        audit = audit_in_flight(steps._replace(caption=places), texts, store.better_than_nothing()[rows])
        found = audit.found
        row: dict[str, Any] = {
            "env_steps": env_steps,
            "goal": self._goal,
            "episodes": len(self._episodes.ended),
            "findings": [{"check": one.check, "sentence": one.sentence, "advice": one.advice} for one in found],
            "not_looked_at": [{"check": one.name, "why": one.skipped} for one in audit.skipped],
            "paid": audit.paid,
        }
        with open(self._file, "a") as file:
            file.write(json_line(row))
        self._figures = {"findings": float(len(found)), "neutral": audit.neutral}
        for one in [one for one in found if one.check not in self._told][:TOLD]:
            sentence = clean(one.sentence)
            print_line(f"train_policy: audit at {env_steps:,} steps: {one.check}: {sentence}. Try {one.advice}.")
        self._told = {one.check for one in found}

    def figures(self) -> Figures:
        figures, self._figures = self._figures, {}
        return {METRIC + name: value for name, value in figures.items()}

    @staticmethod
    def page(folder: Path, rows: Rows) -> list[Block]:
        """The last audit, and the curve of pay for neutral captions."""
        audits = [*read_lines(folder / AUDITS)] if (folder / AUDITS).exists() else []
        if not audits:
            return []
        body: list[Block] = [Heading("The last audit during training")]
        points = curve(rows, f"{METRIC}neutral")
        if any(share for _, share in points):
            lines = {"neutral": [(steps, 100 * share) for steps, share in points]}
            note = "% of the pay, by the labels then"
            body.append(Box([Curves(lines, "steps", title="Pay for neutral captions", note=note)], "charts"))
        return body + audit_blocks(audits[-1])


def audit_blocks(audit: Mapping[str, Any]) -> list[Block]:
    """One audit during training."""
    when = f"at {audit['env_steps']:,} steps, over the last {audit['episodes']:,} episodes"
    body: list[Block] = [Paragraph(f"{when} · goal: {audit['goal']}", "soft")]
    body += findings_blocks(audit["findings"], [], audit["not_looked_at"])
    cells = [
        [f"{one['share']:.1%}", one["captions"], f"{one['times']:,}", WORTHS[one["worth"]]] for one in audit["paid"]
    ]
    head = ("share of the pay", "captions", "times paid", "to the judge")
    return [*body, Table(head, cells, numbers=(2,))] if cells else body
