"""How many questions an order of asking saves, with the rules as the judge, on the dataset of `--workdir`.

A fifth of the captions is set aside. Questions about the others are asked in one order or another, AT_ONCE at a time;
after each round small rewards learn from all answers so far. The agreement is the share of HELD_OUT pairs, of two
captions that were set aside, whose better one has the higher mean reward. A row says after how many questions (between
two rounds, by a straight line) the agreement is, and stays, within one point of the one that all answers lead to: the
mean over SEEDS, with its 95 % t interval.

questions.needed.ORDER   orders of `annotate.order`; the rewards are those of stages/annotate/
questions.saved          questions that `disagreement` saves, in percent of those of a random order
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from benchmarks.rows import Row, Rows
from motif_jax.captions import decode
from motif_jax.envs.texts import preference, texts_of
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.store import PairDataset
from motif_jax.stages.annotate.disagreement import disagreement, small_rewards
from motif_jax.structs import UserError

SEEDS = 5
HELD_OUT = 2_000
SET_ASIDE = 0.2  # share of the captions
AT_ONCE, MOST = 750, 3_000  # questions in a round, and in all rounds
SHOWN = 750, 1_500, 3_000
POINT = 0.01
T_OF_SEEDS = 2.776  # 97.5 % quantile of Student's t with SEEDS - 1 degrees of freedom


class AnswerTable(NamedTuple):
    """What one seed asks about, and what it is tested on."""

    messages: np.ndarray  # [U, 256] uint8
    worth: np.ndarray  # of each caption, by the rules. [U]
    pairs: np.ndarray  # the captions of each question. [Q, 2]
    held_out: np.ndarray  # pairs of captions that no question shows, the better one second. [H, 2]
    temperature: float

    def agreement(self, rewards: np.ndarray) -> float:
        """The share of the held-out pairs whose better caption has the higher reward. [U] -> ()"""
        first, second = rewards[self.held_out].T
        return float((second > first).mean())


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `questions.*`."""
    rows = Rows()
    asked = [set_aside(config, workdir, seed) for seed in range(SEEDS)]
    needed = {order: add_order(rows, asked, order) for order in ("random", "disagreement")}
    saved = 100 * (1 - needed["disagreement"] / needed["random"])
    half = T_OF_SEEDS * saved.std(ddof=1) / SEEDS**0.5
    rows.add("questions.saved", saved.mean(), "%", 1, half_interval=round(half, 1), instead_of="random")
    return rows


def set_aside(config: ConfigDict, workdir: Path, seed: int) -> AnswerTable:
    """Sets captions aside; raises UserError if the dataset has too few."""
    dataset = PairDataset(workdir / "dataset")
    table, ids = dataset.captions()
    if dataset.length > 1:
        raise UserError(f"this is measured on pairs of single steps, not of {dataset.length} (--config.collect.length)")
    worth_of = texts_of(config.env, config.annotate.lexicon).rules().worth_to(config.annotate.goal)
    worth = np.array([worth_of(decode(message))[0] for message in table.messages])
    rng = np.random.default_rng([seed, 91])
    aside = rng.random(len(worth)) < SET_ASIDE
    pairs = np.asarray(ids)[Questions(dataset, "msg").rows()][..., 0]
    pairs = pairs[~aside[pairs].any(1)]
    drawn = rng.choice(np.flatnonzero(aside), (50 * HELD_OUT, 2))
    better = worth[drawn[:, 1]] > worth[drawn[:, 0]]
    held_out = np.unique(drawn[better], axis=0)
    if len(held_out) < HELD_OUT or len(pairs) < MOST:
        raise UserError(f"{len(pairs):,} questions and {len(held_out):,} pairs to hold out are too few (--workdir)")
    held_out = rng.permutation(held_out)[:HELD_OUT]
    return AnswerTable(np.ascontiguousarray(table.messages), worth, pairs, held_out, config.annotate.rules_temperature)


Curve = Iterator[tuple[int, float]]  # questions so far, agreement; the last one is that of all questions


def add_order(rows: Rows, asked: list[AnswerTable], order: str) -> np.ndarray:
    """Adds the row of an order; returns the questions that each seed needed."""
    curves = [np.array([*in_rounds(one, order, seed)]) for seed, one in enumerate(asked)]
    needed = np.array([first_within(curve, curve[-1, 1] - POINT) for curve in curves])
    mean, half = needed.mean(), T_OF_SEEDS * needed.std(ddof=1) / SEEDS**0.5
    sizes: dict[str, Any] = {"seeds": [int(number) for number in needed]}
    for at in SHOWN:
        found = [np.interp(at, curve[:, 0], curve[:, 1]) for curve in curves]
        sizes[f"agreement_{at}"] = round(float(np.mean(found)), 4)
    sizes["agreement_all"] = round(float(np.mean([curve[-1, 1] for curve in curves])), 4)
    sizes["questions"] = [int(curve[-1, 0]) for curve in curves]
    rows.add(f"questions.needed.{order}", mean, "questions", 0, half_interval=round(half), **sizes)
    return needed


def first_within(curve: np.ndarray, level: float) -> float:
    """The number of questions from which on the agreement stays at `level` or above."""
    below, asked, found = np.flatnonzero(curve[:, 1] < level), curve[:, 0], curve[:, 1]
    if not len(below):
        return float(asked[0])
    before = below[-1]  # not the last, whose agreement is above the level
    share = (level - found[before]) / (found[before + 1] - found[before])
    return float(asked[before] + share * (asked[before + 1] - asked[before]))


def in_rounds(asked: AnswerTable, order: str, seed: int) -> Curve:
    """Questions as the stage `annotate` asks them."""
    differences = asked.worth[asked.pairs[:, 1]] - asked.worth[asked.pairs[:, 0]]
    target = np.array([preference(difference, asked.temperature) for difference in differences.tolist()])
    shown = asked.pairs[..., None]
    others = np.random.default_rng([seed, 92]).permutation(len(target))
    known = np.zeros(0, np.int64)
    while len(known) < MOST:
        known, others = np.append(known, others[:AT_ONCE]), others[AT_ONCE:]
        rewards = small_rewards(asked.messages, shown, target, known, seed)
        yield len(known), asked.agreement(rewards.mean(0))
        if order == "disagreement":
            others = others[np.argsort(-disagreement(rewards, shown[others]), kind="stable")]
    rewards = small_rewards(asked.messages, shown, target, np.arange(len(target)), seed)
    yield len(target), asked.agreement(rewards.mean(0))
