"""Results of a program on recorded episodes, in sentences for its writer and for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.rewards.code.checking import check
from motif_jax.rewards.code.names import Readable
from motif_jax.rewards.code.types import Program
from motif_jax.rewards.source import Setting
from motif_jax.stages.write_reward import WriteConfig
from motif_jax.stages.write_reward.evidence import Pairs, Recorded

IDLE, MANY, LARGE, RARE = 0.1, 0.5, 100.0, 0.0001
OFTEN = 5
LITTLE = 0.01  # ratio of its pay and the game's
WEIGHT = 0.1  # of a finding against agreement: as much as a tenth of the pairs
OPPOSED = 0.4  # share of the pairs; a half is chance


class Tried(NamedTuple):
    """A program and its results."""

    program: Program
    agreement: float  # with the judge, on the pairs that choose
    findings: list[str]  # its defects
    figures: dict[str, Any]

    @property
    def rank(self) -> tuple[bool, float]:
        """Higher is better: programs with any reward first, then agreement minus a penalty for each finding."""
        agreement = 0.0 if np.isnan(self.agreement) else self.agreement
        return self.figures["spread"] > 0, agreement - WEIGHT * len(self.findings)


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
            findings.append(
                f"{standing:.0%} of its pay is for steps that change nothing: subtract something for still()"
            )
    if positive.sum() > 0 and (again := float(positive[recorded.repeated(OFTEN)].sum() / positive.sum())) > MANY:
        findings.append(
            f"{again:.0%} of its pay is for captions that the episode has shown more than {OFTEN} times before, so an "
            "agent can earn it by going to and fro: pay for the first time alone, with once(...)"
        )
    if len(steps) and (largest := float(np.abs(steps).max())) > LARGE:
        findings.append(f"its largest reward is {largest:.3g}: other rewards are about 1, so divide it")
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
        learnt_figures, finding = compare_with_learnt(returns, learnt, pairs, agreement)
        figures |= learnt_figures
        findings += [finding] if finding else []
    return Tried(program, agreement, findings, figures)


def describe_results(tried: Tried, recorded: Recorded, pairs: Pairs, texts: list[str], examples: int = 2) -> str:
    """The results as a list, with pairs of episodes about which the program and the judge disagree."""
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
    left_out = [f"    ({len(shown) - lines} more lines)"] if len(shown) > lines else []
    return "\n".join([f"    {line}" for line in shown[:lines]] + left_out)


# ---- beside the learnt reward


def learnt_returns(config: WriteConfig, workdir: Path, recorded: Recorded, world: Any) -> np.ndarray | None:
    """The return of each episode by the learnt reward, as training would pay it. [num_episodes]

    It is that of the stage train_reward in the workdir, or of --config.policy.reward_dir. None if it does not exist,
    was learnt for another goal, or reads what programs do not read.
    """
    if not config.policy.reward_dir and not (workdir / "reward" / "checkpoints").is_dir():
        return None
    from motif_jax.rewards.learnt_source import LearntSource  # loads JAX

    source = LearntSource.make(Setting(config, workdir, world.specs))
    goal = source.about()["goal"]
    if goal not in (None, config.annotate.goal) or not {*source.observations} <= recorded.rollouts[0].keys():
        return None
    return recorded.returns([np.asarray(source.rewards(rollout)) for rollout in recorded.rollouts])


def compare_with_learnt(
    returns: np.ndarray, learnt: np.ndarray, pairs: Pairs, agreement: float
) -> tuple[dict[str, Any], str]:
    """Figures of the comparison, and a finding if the two often disagree and the judge sides with the learnt reward.

    Args:
      returns, learnt: of each episode, by the program and by the learnt reward. [num_episodes]
      pairs: that choose, with the judge's verdicts.
      agreement: of the program with the judge.
    """
    (a, b), (c, d) = returns[pairs.episodes].T, learnt[pairs.episodes].T
    clear = (a != b) & (c != d)
    disagree = float(((b - a) * (d - c) < 0)[clear].mean()) if clear.any() else float("nan")
    varied = np.ptp(returns) > 0 and np.ptp(learnt) > 0
    figures = {
        "learnt_agreement": pairs.agreement(learnt), "learnt_disagrees": disagree,
        "learnt_correlation": float(np.corrcoef(returns, learnt)[0, 1]) if varied else float("nan"),
    }  # fmt: skip
    if disagree > OPPOSED and figures["learnt_agreement"] > agreement:
        return figures, (
            f"the learnt reward prefers the other episode in {disagree:.0%} of the pairs, and agrees with the judge "
            f"about {figures['learnt_agreement']:.0%} of them"
        )
    return figures, ""
