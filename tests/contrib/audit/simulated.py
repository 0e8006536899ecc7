"""A reward, its judge and the games of two players, made by rules and a seed, with one thing wrong or nothing."""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from motif_jax.annotation.verdicts import PairAnswers, episode_text
from motif_jax.contrib.audit.findings import Captions, Findings, Steps, group_captions
from motif_jax.contrib.audit.judge import EpisodePairs, Evidence, examine, make_plan

WORTHS = {  # of events, as rules have them
    "kills": 3.0, "descends": 3.0, "takes gold": 2.0, "hits": 1.0, "sees gold": 1.0, "opens": 0.5, "finds a door": 0.25,
    "misses": 0.25, "is bitten": -0.5, "falls": -1.0, "dies": -3.0,
}  # fmt: skip
OBJECTS = ("a newt", "a rat", "a jackal", "a lichen", "12 things", "3 things")
DULL = [f"You see {what} here." for what in ("a rock", "an altar", "7 darts", "a corpse", "a tin", "a wall", "a tree")]
DULL += [f"It is {what}." for what in ("dark", "solid", "locked", "cold", "late", "quiet", "no use", "too far", "wet")]
EXPLOIT, FARMED, HELD = "You look at {} things.", "You kick door {}.", "You stand on item {}."
STANDS = 8  # steps in a row
PAIRS, EPISODES, STEPS = 5000, 100, 300


class Wrong(NamedTuple):
    flips: float = 0.0  # share of the answers that are the other way round, at random each time
    stubborn_flips: float = 0.0  # the same, but a question has always the same answer, in both orders
    ties: float = 0.0  # share of the answers that are ties, at random each time
    first_bias: float = 0.0  # share of the answers that name what is shown first
    unreadable: float = 0.0
    exploit: float = 0.0  # share of the agent's pay that is for a dull caption with ever different numbers
    loop: float = 0.0  # share of the episodes in which the agent is paid for one door again and again
    inflated: str = ""  # an event that is rewarded like the best
    inverted: str = ""  # an event whose reward has the wrong sign
    noise: float = 0.15  # of the reward, where the worths reach from -3 to 3
    asked: bool = False  # whether the worth of captions must be asked
    held: float = 0.0  # share of the agent's pay that is for standing, for STANDS steps with one caption
    skill: float = 1.0  # of the agent, beyond what it is wrongly paid for; that of random play is 0


class Simulated:
    def __init__(self, wrong: Wrong, seed: int):
        self.wrong, self.rng = wrong, np.random.default_rng(seed)
        events = {f"Somebody {event} {what}.": event for event in WORTHS for what in OBJECTS}
        texts = ["", *events, *DULL, *(EXPLOIT.format(n) for n in range(STEPS)), *(FARMED.format(n) for n in range(50))]
        texts += [HELD.format(n) for n in range(50)]
        self.worths = {text: WORTHS[event] for text, event in events.items()}
        worth = np.array([self.worth(text) for text in texts])
        values = worth + self.rng.normal(0, wrong.noise, len(texts))
        rules = np.array([events.get(text, "") for text in texts])
        values[(rules == wrong.inverted) & (rules != "")] *= -1
        values[(rules == wrong.inflated) & (rules != "")] += 3.0 - WORTHS.get(wrong.inflated, 0.0)
        paid = {"You look": (wrong.exploit, 2.0), "You stand": (wrong.held, 2.0), "You kick": (wrong.loop, 1.5)}
        for start, (share, value) in paid.items():
            if share:
                values[np.char.startswith(texts, start)] = value
        group, names = group_captions(texts, None if wrong.asked else rules.tolist())
        of_group = np.full(len(names), np.nan)
        if not wrong.asked:
            of_group[group] = worth
        self.captions = Captions(texts, values, group, names, of_group)
        self.numbers = {text: at for at, text in enumerate(texts)}

    def worth(self, text: str) -> float:
        return sum(self.worths.get(line.partition(" (")[0], 0.0) for line in text.split("\n"))

    def ask(self, questions: Sequence[tuple[str, str]]) -> np.ndarray:
        """The judge's answers: P(second is better)."""
        wrong, count = self.wrong, len(questions)
        answers = self.second(questions)
        flipped = self.rng.random(count) < wrong.flips
        if wrong.stubborn_flips:
            drawn = [zlib.crc32("|".join(sorted(question)).encode()) / 2**32 for question in questions]
            flipped ^= np.array(drawn) < wrong.stubborn_flips
        answers = np.where(flipped, 1 - answers, answers)
        answers[self.rng.random(count) < wrong.ties] = 0.5
        answers[self.rng.random(count) < wrong.first_bias] = 0.0
        answers[self.rng.random(count) < wrong.unreadable] = np.nan
        return answers

    def second(self, questions: Sequence[tuple[str, str]]) -> np.ndarray:
        return np.array([np.sign(self.worth(second) - self.worth(first)) for first, second in questions]) / 2 + 0.5

    def play(self, skill: float, paid_wrongly: bool) -> Steps:
        """Episodes of a player: its share of good events grows with its skill, that of bad ones falls.

        `self.still` has the steps in which nothing else happens: a third, and all in which the agent stands.
        """
        rng, wrong = self.rng, self.wrong
        texts = self.captions.texts
        good = [self.numbers[text] for text, worth in self.worths.items() if worth > 0]
        bad = [self.numbers[text] for text, worth in self.worths.items() if worth < 0]
        dull = [self.numbers[text] for text in DULL]
        kinds = rng.choice(4, (EPISODES, STEPS), p=[0.03 + 0.1 * skill, 0.05 - 0.03 * skill, 0.4, 0.52 - 0.07 * skill])
        caption = np.choose(kinds, [*(rng.choice(some, kinds.shape) for some in (good, bad, dull)), 0])
        if paid_wrongly and wrong.exploit:
            paid = self._pay(caption).clip(0).sum(1).mean()
            often = wrong.exploit / (1 - wrong.exploit) * paid / 2.0  # times an episode
            for row in caption:
                number = rng.poisson(often)
                row[rng.choice(STEPS, number, replace=False)] = [self.numbers[EXPLOIT.format(n)] for n in range(number)]
        if paid_wrongly and wrong.loop:
            for at in np.flatnonzero(rng.random(EPISODES) < wrong.loop):
                caption[at, rng.choice(STEPS, 50, replace=False)] = [self.numbers[FARMED.format(n)] for n in range(50)]
        still = np.random.default_rng(len(texts)).random(caption.shape) < 1 / 3
        if paid_wrongly and wrong.held:
            each = 2.0 * sum(1 / n**3 for n in range(1, STANDS + 1))
            often = wrong.held / (1 - wrong.held) * self._pay(caption).sum(1).mean() / each  # times an episode
            for row, quiet in zip(caption, still, strict=True):
                for number, at in enumerate(rng.choice(STEPS // STANDS, min(rng.poisson(often), 30), replace=False)):
                    row[at * STANDS :][:STANDS] = self.numbers[HELD.format(number)]
                    quiet[at * STANDS :][:STANDS] = True
        assert texts[0] == ""
        self.still = still.ravel()
        return Steps(np.repeat(np.arange(EPISODES), STEPS), caption.ravel(), self._pay(caption).ravel())

    def _pay(self, caption: np.ndarray) -> np.ndarray:
        """z / n^3 above the threshold, as the program pays."""
        counts = np.ones(caption.shape)
        for at, row in enumerate(caption):
            order = np.argsort(row, kind="stable")
            start = np.r_[True, np.diff(row[order]) > 0]
            counts[at, order] = np.arange(STEPS) - np.maximum.accumulate(np.where(start, np.arange(STEPS), 0)) + 1
        values = self.captions.values[caption]
        return np.where(values > 0.2, values, 0) / counts**3

    def labels(self, agent: Steps) -> tuple[np.ndarray, np.ndarray]:
        """Labels of pairs of moments, as the judge gives them; few of these have no message."""
        seen = agent.caption[(agent.caption > 0) | (self.rng.random(len(agent.caption)) < 0.1)]
        pairs = self.rng.choice(seen, (PAIRS, 2))
        texts = self.captions.texts
        return pairs, self.ask([(texts[first], texts[second]) for first, second in pairs])

    def audit(self, pairs: int = 40) -> Findings:
        agent = self.play(self.wrong.skill, True)
        still, chance = self.still, self.play(0.0, False)
        worths = np.array([self.worth(text) for text in self.captions.texts])
        scores = tuple(worths[steps.caption].reshape(EPISODES, STEPS).sum(1) for steps in (agent, chance))
        words: dict[bool, list[str]] = {}
        returns: dict[bool, np.ndarray] = {}
        for late, steps in ((False, chance), (True, agent)):
            shown = steps.caption.reshape(EPISODES, STEPS)[:pairs]
            words[late] = [episode_text([self.captions.texts[at] for at in row], {}, True) for row in shown]
            returns[late] = steps.pay.reshape(EPISODES, STEPS).sum(1)[:pairs]
        evidence = Evidence(
            self.captions, not self.wrong.asked, agent, still, {"score": scores}, self.labels(agent),
            EpisodePairs(words[False], words[True], returns[False], returns[True]),
        )  # fmt: skip
        plan = make_plan(evidence, flips=400, triples=300, repeats=200, seed=0)
        questions = plan.questions
        again = self.ask([questions[at] for at in plan.repeats])
        second = "rules", self.second([questions[at] for at in plan.flips[:, 0]])
        return examine(evidence, plan, PairAnswers(self.ask(questions), again), second)
