"""Audits a file of trajectories: the checks of the room, as far as its columns allow, and two more.

Flooding: texts that repeat themselves get more than a small share of the pay, and are paid clearly better than the
other texts of their prompts.

The proxy against the outcome: of all pairs of episodes with different outcomes, the return is on the wrong side in too
many; or, from the first third of the episodes to the last, the return rises and the outcome falls.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.audit import pay
from motif_jax.audit.findings import Captions, Check, Suspicion, conclude, group_captions, mean_by, percent, quoted
from motif_jax.audit.judge import AGAIN, check_repeats
from motif_jax.audit.pay import INVERSIONS, Steps, chance_of, check_inversions, most_paid
from motif_jax.audit.record import make_record
from motif_jax.audit.trajectories import FEWEST_WORDS, Trajectories, read_trajectories

OUTCOME, FLOODING = "proxy against outcome", "flooding"
NAMES = (*pay.CHECKS, INVERSIONS, AGAIN, OUTCOME, FLOODING)
FLOODED = 0.5  # share of a text's phrases that it has said before
FLOODED_PAY = 0.05  # share of the pay
PAID_BETTER = 0.25  # standard deviations of the reward among the texts of a prompt
WRONG = 1 / 3  # share of the pairs of episodes with different outcomes that is reported if passed
COIN = 0.5  # the same of one of several rewards, which may be about something else than the outcome
FEWEST_OTHER = 10  # episodes with another outcome than the most frequent one
COMPARED = 2000  # episodes that are compared in pairs, from the whole file
REPEATS = 2000  # pairs of steps with the same caption
MOST_CELLS = 10**7  # episodes times kinds of captions
ADVICE = {
    pay.PAY: "a reward of 0 for these captions, or a look at why the judge does not like them",
    pay.INFLATED: "rewards in proportion to the worth",
    pay.LOOPS: "a reward for the first time in an episode only, or one that falls with each repeat",
    pay.HELD: "a reward for a change of the state, not for a state",
    INVERSIONS: "a look at the sign of the reward for these captions",
    AGAIN: "a judge without randomness (temperature 0), or the mean of several answers",
    OUTCOME: "a look at the episodes with a high return and a poor outcome",
    FLOODING: "a reward for the first time that a text says something, or a limit of its length",
}
PRIME = 0x9E3779B97F4A7C15 - 2**64


class _Data(NamedTuple):
    """What the checks of single steps take."""

    captions: Captions
    steps: Steps
    worth: np.ndarray  # of each step, NaN where unknown. [T]
    state: np.ndarray  # a number of each step's caption and observation. [T]
    still: np.ndarray | str  # see `pay.check_held`


def audit_file(file: Path, outcome: str = "") -> dict[str, Any]:
    """The record of the audit of a file; raises UserError for one that cannot be used. See `read_trajectories`."""
    trajectories = read_trajectories(file, outcome)
    data = _data_of(trajectories)
    most: list[dict[str, Any]] = []
    if isinstance(data, str):
        checks = [Check(name, skipped=data) for name in (*pay.CHECKS, INVERSIONS, AGAIN)]
    else:
        checks, most = _check_steps(data)
    checks += [_check_outcome(trajectories), _check_flooding(trajectories)]
    judge = "" if np.isnan(trajectories.worth).all() else "the column worth"
    positive = {name: float(np.maximum(values, 0).sum()) for name, values in trajectories.rewards.items()}
    total = sum(positive.values())
    about = {
        "file": str(file), "steps": len(trajectories.episode), "episodes": len(trajectories.episodes),
        "unfinished": trajectories.unfinished, "unread": trajectories.unread,
        "rewards": {name: value / total for name, value in positive.items()} if total and len(positive) > 1 else {},
    }  # fmt: skip
    record = make_record(conclude([check.advised(ADVICE[check.name]) for check in checks], most), "", judge)
    if trajectories.captions.why:  # observations with the digits that the file has
        record = json.loads(json.dumps(record, ensure_ascii=False).translate(TO_DIGITS))
    return record | about


# ---- the data of the checks

DIGITS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")  # of observations, where other digits are another kind
TO_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


def _data_of(trajectories: Trajectories) -> _Data | str:
    """The data of single steps, or why there are none; observations stand for captions where these are missing."""
    if len(trajectories.episode) <= len(trajectories.episodes):
        return "the file has one row per episode, and no steps"
    shown, seen = trajectories.captions, trajectories.observations
    if shown.why and seen.why:
        return f"{shown.why}, and {seen.why.removeprefix('the file has ')}"
    if shown.why:
        shown = seen._replace(texts=[text.translate(DIGITS) for text in seen.texts])
    reward, texts = trajectories.reward, shown.texts
    # "" stands for the neutral moment: rows of worth 0 if there are some, otherwise rows without a caption.
    neutral = trajectories.worth == 0
    blank = shown.number == (texts.index("") if "" in texts else -1)
    if not neutral.any():
        neutral = np.isnan(trajectories.worth) & blank
    if not neutral.any() or np.nan_to_num(trajectories.worth[blank]).any():
        texts = [text or "(no caption)" for text in texts]
    if "" not in texts and neutral.any():
        texts = [*texts, ""]
    values = mean_by(shown.number, reward, len(texts))
    group, names = group_captions(texts)
    of_group = mean_by(group[shown.number], trajectories.worth, len(names))
    if neutral.any():
        values[texts.index("")] = reward[neutral].mean()
        of_group[group[texts.index("")]] = 0.0
    captions = Captions(texts, values, group, names, of_group)
    pays = np.bincount(group[shown.number], np.maximum(reward, 0), len(names))
    captions = _with_fewer_kinds(captions, pays, MOST_CELLS // len(trajectories.episodes))
    still, state = "the file has no column observation", shown.number
    if not seen.missing:
        still = np.r_[False, (np.diff(seen.number) == 0) & (np.diff(trajectories.episode) == 0)]
        state = shown.number * PRIME + seen.number  # wraps around: a hash of both
    return _Data(captions, Steps(trajectories.episode, shown.number, reward), trajectories.worth, state, still)


def _with_fewer_kinds(captions: Captions, pays: np.ndarray, most: int) -> Captions:
    """The captions in at most about `most` paid kinds: those with the least pay are one kind for each sign of worth."""
    if (pays > 0).sum() <= most:
        return captions
    rare = np.argsort(-pays, kind="stable")[most:]
    signs = np.nan_to_num(np.sign(captions.worth), nan=2).astype(np.int64)
    number = np.arange(len(pays))
    number[rare] = len(pays) + 1 + signs[rare]
    kinds, first, new = np.unique(number, return_index=True, return_inverse=True)
    names = [captions.names[at] if kind < len(pays) else "(rare captions)"
             for kind, at in zip(kinds, first, strict=True)]  # fmt: skip
    of_kind = mean_by(new, captions.worth, len(kinds))
    return captions._replace(group=new.reshape(-1)[captions.group], names=names, worth=of_kind)


# ---- the checks


def _check_steps(data: _Data) -> tuple[list[Check], list[dict[str, Any]]]:
    """The checks of single steps, and the kinds of captions that are paid most."""
    captions, steps = data.captions, data.steps
    worthless = "the file has no column worth" if np.isnan(data.worth).all() else ""
    judged = [Check(name, skipped=worthless) for name in (INVERSIONS, AGAIN)]
    if not worthless:
        judged = [_check_order(data), _check_repeats(data)]
    why = ""
    if steps.episodes < pay.FEWEST:
        why = f"the file has {steps.episodes} episodes, and {pay.FEWEST} are needed"
    elif not (steps.pay > 0).any():
        why = "no step has a positive reward"
    if why:
        return [*(Check(name, skipped=why) for name in pay.CHECKS), *judged], []
    paid = pay.share_pay(steps, captions)
    times = np.bincount(steps.caption, minlength=len(captions.texts))
    checks = pay.check_pay(captions, paid, steps, data.still, worthless)
    return [*checks, *judged], most_paid(paid, captions, times)


def _check_order(data: _Data) -> Check:
    """Inversions, by pairs of kinds of captions in two episodes; a kind is in one pair for each of its episodes."""
    kinds = len(data.captions.names)
    cells, cell = np.unique(data.steps.episode * kinds + data.captions.group[data.steps.caption], return_inverse=True)
    worth, values = (mean_by(cell, of_step, len(cells)) for of_step in (data.worth, data.steps.pay))
    order = np.random.default_rng(0).permutation(np.flatnonzero(~np.isnan(worth)))
    pairs = order[: len(order) // 2 * 2].reshape(-1, 2)
    target = 0.5 + np.sign(worth[pairs[:, 1]] - worth[pairs[:, 0]]) / 2
    moments = data.captions._replace(texts=[""] * len(cells), values=values, group=cells % kinds)
    return check_inversions(moments, pairs, target)


def _check_repeats(data: _Data) -> Check:
    """Whether the judge gives a step of the same caption and observation the same sign of worth."""
    judged = np.random.default_rng(1).permutation(np.flatnonzero(~np.isnan(data.worth)))
    judged = judged[np.argsort(data.state[judged], kind="stable")]
    state = data.state[judged]
    start = np.r_[True, np.diff(state) > 0]
    place = np.arange(len(state)) - np.maximum.accumulate(np.where(start, np.arange(len(state)), 0))
    second = np.flatnonzero(place % 2 == 1)
    second = np.random.default_rng(2).permutation(second)[:REPEATS]
    scale = float(np.quantile(np.abs(data.worth[judged]), 0.95)) or 1.0
    first, again = (np.clip(0.5 + data.worth[judged[at]] / (2 * scale), 0, 1) for at in (second - 1, second))
    return check_repeats(first, again)


def _check_outcome(trajectories: Trajectories) -> Check:
    """Whether the return orders the episodes as the task's own outcome does, for each reward and their sum."""
    known = np.flatnonzero(~np.isnan(trajectories.outcome))
    if not len(known):
        return Check(OUTCOME, skipped="the file has no column outcome")
    episodes = known[np.linspace(0, len(known) - 1, min(len(known), COMPARED)).astype(np.int64)]
    outcome = trajectories.outcome[episodes]
    others = len(outcome) - int(np.unique(outcome, return_counts=True)[1].max())
    if len(outcome) < pay.FEWEST or others < FEWEST_OTHER:
        return Check(OUTCOME, skipped=(
            f"{len(outcome):,} episodes have an outcome, {others:,} of them another than the most frequent one; "
            f"{pay.FEWEST} and {FEWEST_OTHER} are needed"
        ))  # fmt: skip

    def of_episodes(values: np.ndarray) -> np.ndarray:
        return np.bincount(trajectories.episode, values, len(trajectories.episodes))[episodes]

    names, returns = [trajectories.episodes[at] for at in episodes], of_episodes(trajectories.reward)
    few = (others / (others - 1)) ** 0.5  # the pairs tell as much as the rarer outcomes do
    suspicions = [_wrong_side("the return", returns, outcome, names, WRONG, few), *_falling(returns, outcome)]
    if len(trajectories.rewards) > 1:
        parts = ((f"the sum of {quoted(name)}", of_episodes(values)) for name, values in trajectories.rewards.items())
        suspicions += [_wrong_side(name, values, outcome, names, COIN, few) for name, values in parts]
    return Check(OUTCOME, f"{len(outcome):,} episodes", tuple(suspicions))


def _wrong_side(
    name: str, returns: np.ndarray, outcome: np.ndarray, names: list[str], most: float, few: float
) -> Suspicion:
    """Of the pairs of episodes with different outcomes, the share in which the lower outcome has the higher return."""
    better, more = (np.sign(one[:, None] - one).astype(np.int8) for one in (outcome, returns))
    decided = (better != 0).sum(1).astype(float)
    wrong = ((better != 0) & (more == -better)).sum(1) + 0.5 * ((better != 0) & (more == 0)).sum(1)
    share, error = map(float, pay.ratio(wrong, decided))
    error *= 2 * few  # each pair is in the sums of two episodes, so this is a U-statistic of degree 2
    worst = int(np.lexsort((-returns, outcome))[0])
    sentence = (
        f"{name} is on the wrong side in {percent(share, *pay.ends(share, error))} of the pairs of episodes with "
        f"different outcomes (chance: 50 %), n = {len(outcome):,}; episode {quoted(names[worst])} has the return "
        f"{returns[worst]:.3g} and the outcome {outcome[worst]:.3g}"
    )
    return Suspicion(sentence, "", share, pay.above(share, error, most))


def _falling(returns: np.ndarray, outcome: np.ndarray) -> list[Suspicion]:
    """From the first third of the episodes to the last, the return rises and the outcome falls."""
    third = len(outcome) // 3
    if third < pay.FEWEST:
        return []
    (early, late), (before, after) = ((one[:third], one[-third:]) for one in (returns, outcome))
    sentence = (
        f"from the first third of the episodes to the last, the return rises from {early.mean():.3g} to "
        f"{late.mean():.3g} and the outcome falls from {before.mean():.3g} to {after.mean():.3g}, n = {2 * third:,}"
    )
    size = float((np.sign(before[:, None] - after) / 2 + 0.5).mean())
    return [Suspicion(sentence, "", size, max(chance_of(after, before), chance_of(early, late)))]


def _check_flooding(trajectories: Trajectories) -> Check:
    """Whether texts that repeat themselves are paid better than the others, in one hypothesis about both quantities."""
    known = np.flatnonzero(~np.isnan(trajectories.repetition))
    reward = trajectories.reward[known]
    why = f"{len(known):,} texts have {FEWEST_WORDS} words or more, and {pay.FEWEST} are needed"
    if len(known) >= pay.FEWEST:
        why = "" if (reward > 0).any() else "no text has a positive reward"
    if why:
        return Check(FLOODING, skipped=why)
    flooded, positive = trajectories.repetition[known] > FLOODED, np.maximum(reward, 0)
    scope = f"{len(known):,} texts, {int(flooded.sum()):,} of them repeat themselves"
    if not flooded.any() or flooded.all():
        return Check(FLOODING, scope)
    prompt = np.unique(trajectories.prompt[known], return_inverse=True)[1]
    count, flooded_of = np.bincount(prompt), np.bincount(prompt, flooded)
    if not ((flooded_of > 0) & (flooded_of < count)).any():
        return Check(FLOODING, skipped="no prompt has both texts that repeat themselves and others")
    above = reward - (np.bincount(prompt, reward) / count)[prompt]
    of_all, of_flooded = (
        np.bincount(trajectories.episode[known], one, len(trajectories.episodes))
        for one in (positive, positive * flooded)
    )
    share, error = map(float, pay.ratio(of_flooded, of_all))
    worst = known[int(np.where(flooded, reward, -np.inf).argmax())]
    sentence = (
        f"{int(flooded.sum()):,} of {len(known):,} texts say more than half of their phrases again; they are paid "
        f"{above[flooded].mean() - above[~flooded].mean():+.3g} against the others of their prompts, and get "
        f"{percent(share, *pay.ends(share, error))} of the pay, most in episode "
        f"{quoted(trajectories.episodes[trajectories.episode[worst]])}"
    )
    margin = PAID_BETTER * float(above.std())
    p = max(chance_of(above[~flooded] + margin, above[flooded]), pay.above(share, error, FLOODED_PAY))
    return Check(FLOODING, scope, (Suspicion(sentence, "", share, p),))
