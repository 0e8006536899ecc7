"""What came of a program on recorded episodes, in sentences for its writer and for people."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from motif_jax.captions import decode
from motif_jax.rewards.code.checking import check
from motif_jax.rewards.code.names import CAPTION, Readable
from motif_jax.rewards.code.types import Program
from motif_jax.stages.write_reward.evidence import Pairs, Recorded
from motif_jax.stages.write_reward.learnt import beside_learnt

IDLE, MANY, LARGE, RARE = 0.1, 0.5, 100.0, 0.0001
OFTEN = 5
COIN = 0.5  # agreement of one
LITTLE = 0.01  # ratio of its pay and the game's
WEIGHT = 0.1  # of a finding against agreement: as much as a tenth of the pairs


class Tried(NamedTuple):
    """A program and what came of it."""

    program: Program
    agreement: float  # with the judge, on the pairs that choose
    findings: list[str]  # what is wrong with it
    figures: dict[str, Any]

    @property
    def is_reward(self) -> bool:
        """Whether it can be the best: it does not pay the same everywhere, nor agrees less than a coin would."""
        return self.figures["spread"] > 0 and not self.agreement < COIN

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Higher is better: what can be the best, with pay at all, then agreement less something for each finding."""
        agreement = 0.0 if np.isnan(self.agreement) else self.agreement
        return self.is_reward, self.figures["spread"] > 0, agreement - WEIGHT * len(self.findings)


def examine(
    program: Program, recorded: Recorded, pairs: Pairs, readable: Readable, learnt: np.ndarray | None = None
) -> Tried:
    """Runs a program on all recorded episodes; `learnt` has their returns by a learnt reward. [num_episodes]"""
    pay = recorded.pay(program)
    steps, returns = recorded.of_episodes(pay), recorded.returns(pay)
    agreement, findings = pairs.agreement(returns), []
    spread = float(np.ptp(steps)) if len(steps) else 0.0
    positive = np.maximum(steps, 0.0)
    if not spread:
        findings.append(f"it pays the same in every step ({steps[0]:.3g})" if len(steps) else "it was never paid")
    elif (share := float((steps != 0).mean())) < RARE:
        findings.append(f"it pays in {share:.3%} of the steps: an agent will hardly ever meet it")
    if readable.still and positive.sum() > 0:
        idle = recorded.of_episodes(recorded.pay(check("still()", readable))) > 0
        if (standing := float(positive[idle].sum() / positive.sum())) > IDLE:
            where = _where(recorded, positive * idle)
            findings.append(
                f"{standing:.0%} of its pay is for steps that change nothing{where}: subtract something for still()"
            )
    if positive.sum() > 0 and (again := float(positive[recorded.repeated(OFTEN)].sum() / positive.sum())) > MANY:
        findings.append(
            f"{again:.0%} of its pay is for captions that the episode has shown more than {OFTEN} times before, so an "
            "agent can earn it by going to and fro: pay for the first time alone, with once(...)"
        )
    if len(steps) and (largest := float(np.abs(steps).max())) > LARGE:
        where = _where(recorded, np.abs(steps))
        findings.append(f"its largest reward is {largest:.3g}{where}: other rewards are about 1, so divide it")
    if spread and (every := float((steps > 0).mean())) > MANY:
        findings.append(f"it pays in {every:.0%} of the steps: longer episodes are paid more, whatever happens in them")
    figures = {
        "agreement": agreement, "spread": spread, "mean_return": float(returns.mean()),
        "deviation_of_returns": float(returns.std()), "paid_steps": float((steps != 0).mean()) if len(steps) else 0.0,
        "equal_returns": float(np.mean(np.equal(*returns[pairs.episodes].T))),
    }  # fmt: skip
    game = float(np.abs(recorded.of_episodes([rollout["reward"] for rollout in recorded.rollouts])).sum())
    if spread and game:
        figures["over_game"] = over = float(np.abs(steps).sum()) / game
        if over < LITTLE:  # more is no defect where the game hardly pays
            findings.append(f"it pays {over:.3g} times as much as the game's own reward: multiply it")
    if figures["equal_returns"] > MANY:
        findings.append(f"{figures['equal_returns']:.0%} of the pairs of episodes have equal returns by it")
    if learnt is not None:
        more, finding = beside_learnt(returns, learnt, pairs, agreement)
        figures |= more
        findings += [finding] if finding else []
    return Tried(program, agreement, findings, figures)


def _where(recorded: Recorded, weights: np.ndarray) -> str:
    """The caption of the step with the largest weight, in words. [N]"""
    captions = recorded.of_episodes([rollout[CAPTION] for rollout in recorded.rollouts])
    caption = decode(captions[weights.argmax()])
    return f" (at {caption!r})" if caption else ""


def tell(tried: Tried, recorded: Recorded, pairs: Pairs, texts: list[str], examples: int = 2) -> str:
    """What came of a program, with pairs of episodes about which it and the judge disagree."""
    lines = [f"agrees with the judge about {tried.agreement:.0%} of the pairs of episodes"]
    lines += tried.findings
    returns = recorded.returns(recorded.pay(tried.program))
    for (first, second), judged in zip(pairs.episodes.tolist(), pairs.judged.tolist(), strict=True):
        wrong = (returns[second] - returns[first]) * (judged - 0.5) < 0 or (
            returns[second] == returns[first] and judged != 0.5
        )
        if not np.isnan(judged) and wrong and examples:
            examples -= 1
            better, worse = (second, first) if judged > 0.5 else (first, second)
            lines.append(
                f"the judge prefers this episode, which it pays {returns[better]:.3g}:\n{_cut(texts[better])}\n"
                f"to this one, which it pays {returns[worse]:.3g}:\n{_cut(texts[worse])}"
            )
    return "\n".join(f"- {line}" for line in lines)


def _cut(text: str, lines: int = 12) -> str:
    shown = text.splitlines()
    more = [f"    ({len(shown) - lines} more lines)"] if len(shown) > lines else []
    return "\n".join([f"    {line}" for line in shown[:lines]] + more)
