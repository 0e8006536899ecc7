"""Audits the online reward during training: which captions it rewarded in recent episodes (`audit/in_flight`).

Only the first host audits, and only its own games. `policy/audit.jsonl` has one row for each audit. A resumed run
begins with new games, so it begins with new episodes here, too.
"""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.actors.handoff import RolloutBatch
from motif_jax.audit.in_flight import audit_in_flight
from motif_jax.audit.pay import Steps
from motif_jax.captions import decode
from motif_jax.console import clean, print_line
from motif_jax.files import json_line, keep_lines
from motif_jax.rewards.online.online_section import OnlineValues
from motif_jax.rewards.online.source import OnlineSource
from motif_jax.rewards.registry import ONLINE
from motif_jax.rewards.sources import RewardSources
from motif_jax.stages.train_policy.placing import PlacedBatch

FILE = "audit.jsonl"  # in the policy's directory
RECENT = 100  # episodes that are looked at
MOST = 1_000_000  # paid steps in memory
TOLD = 3  # findings of one audit in the terminal


class Episodes:
    """The paid steps of the last episodes that ended, and of those that are open."""

    def __init__(self) -> None:
        self.ended: collections.deque[int] = collections.deque(maxlen=RECENT)  # numbers of episodes
        self._open: dict[tuple[int, int], np.ndarray] = {}  # (worker, group) -> each game's open episode. [E]
        self._steps: list[Steps] = []  # by rollout
        self._next = self._kept = 0  # number of the next episode; number of steps in `_steps`

    def add(self, batch: RolloutBatch, caption: np.ndarray, pay: np.ndarray) -> None:
        """Adds the steps of a batch; captions below 0 are left out. [T, B] each"""
        placed: PlacedBatch = batch.arrays
        size = len(placed.first) // len(batch.fulls)
        for number, full in enumerate(batch.fulls):
            columns = slice(number * size, (number + 1) * size)
            ended, paid = placed.ended[:, columns], caption[:, columns] >= 0
            episode = self._number(ended, placed.first[columns], (full.worker, full.group))
            self.ended.extend(episode[ended].tolist())
            if number_paid := int(paid.sum()):
                self._steps.append(Steps(episode[paid], caption[:, columns][paid], pay[:, columns][paid]))
                self._kept += number_paid
        if self._kept > MOST:
            self._forget()

    def _number(self, ended: np.ndarray, first: np.ndarray, group: tuple[int, int]) -> np.ndarray:
        """The number of each step's episode. [T, E]"""
        count = ended.sum(0)
        later = self._next + len(first) + np.cumsum(count) - count  # episodes that begin after the first step. [E]
        begun = self._next + np.arange(len(first))
        opened = np.where(first, begun, self._open.get(group, begun))
        before = np.cumsum(ended, 0) - ended  # episodes that ended before each step
        self._open[group] = np.where(count > 0, later + count - 1, opened)
        self._next += len(first) + int(count.sum())
        return np.where(before > 0, later + before - 1, opened)

    def _forget(self) -> None:
        """Drops the steps of earlier episodes, and the oldest steps beyond half of MOST."""
        steps = _join(self._steps)
        wanted = np.isin(steps.episode, [*self.ended, *(number for open in self._open.values() for number in open)])
        self._steps = [Steps(*(column[wanted][-MOST // 2 :] for column in steps))]
        self._kept = len(self._steps[0].pay)

    def steps(self) -> Steps:
        """The paid steps of the ended episodes. Episodes without pay have the first numbers, so that they count."""
        self._forget()
        (steps,) = self._steps
        paid = np.intersect1d(steps.episode, self.ended)
        own = np.isin(steps.episode, paid)
        first = len(self.ended) - len(paid)
        return Steps(first + np.searchsorted(paid, steps.episode[own]), steps.caption[own], steps.pay[own])


def _join(parts: list[Steps]) -> Steps:
    nothing = np.zeros(0, np.int64)
    return Steps(*map(np.concatenate, zip(Steps(nothing, nothing, nothing.astype(np.float32)), *parts, strict=True)))


def audited_source(section: OnlineValues, sources: RewardSources) -> OnlineSource | None:
    """The source whose rewards are audited; None without one, or if audits are off."""
    source = sources.get(ONLINE)
    return source if section.audit_every_steps and isinstance(source, OnlineSource) else None


class FlightAudit:
    """Audits during training."""

    def __init__(self, section: OnlineValues, folder: Path, env_steps: int, sources: RewardSources):
        """Begins, or resumes after `env_steps`; later rows in `folder` are removed."""
        self._source, self._file = audited_source(section, sources), folder / FILE
        self._every, self._steps = section.audit_every_steps, env_steps
        self._episodes, self._goal = Episodes(), ""
        self._told: set[str] = set()  # the checks that had findings in the last audit
        self._figures: dict[str, float] = {}
        if self._file.exists():
            keep_lines(self._file, "env_steps", env_steps)

    def after_update(self, env_steps: int, batch: RolloutBatch) -> None:
        """Takes the steps of a batch, after the source has learnt from it, and audits if it is time."""
        if self._source is None:
            return
        self._add(batch, self._source)
        if env_steps // self._every > self._steps // self._every:
            self._audit(env_steps, self._source)
        self._steps = env_steps

    def _add(self, batch: RolloutBatch, source: OnlineSource) -> None:
        if source.goal != self._goal:  # the pay so far was for another goal
            self._goal = source.goal
            self._episodes = Episodes()
        pay = batch.arrays.rewards[ONLINE]
        caption = np.full(pay.shape, -1)
        caption[pay > 0] = source.store.captions.lookup.find(batch.arrays.paid_messages)
        self._episodes.add(batch, caption, pay)

    def _audit(self, env_steps: int, source: OnlineSource) -> None:
        steps = self._episodes.steps()
        rows, places = np.unique(steps.caption, return_inverse=True)
        texts = [decode(message) for message in source.store.captions.messages[rows]]
        audit = audit_in_flight(steps._replace(caption=places), texts, source.store.better_than_nothing()[rows])
        findings = audit.findings
        row: dict[str, Any] = {
            "env_steps": env_steps,
            "goal": source.goal,
            "episodes": len(self._episodes.ended),
            "findings": [
                {"check": one.check, "sentence": one.sentence, "advice": one.advice} for one in findings.found
            ],
            "not_looked_at": [{"check": one.name, "why": one.skipped} for one in findings.skipped],
            "paid": audit.paid,
        }
        with open(self._file, "a") as file:
            file.write(json_line(row))
        self._figures = {"findings": float(len(findings.found)), "neutral": audit.neutral}
        for one in [one for one in findings.found if one.check not in self._told][:TOLD]:
            print_line(
                f"train_policy: audit at {env_steps:,} steps: {one.check}: {clean(one.sentence)}. Try {one.advice}."
            )
        self._told = {one.check for one in findings.found}

    def figures(self) -> dict[str, float]:
        """Figures of the audit since the last call, for a row of metrics."""
        figures, self._figures = self._figures, {}
        return {f"reward/{ONLINE}_audit_{name}": value for name, value in figures.items()}
