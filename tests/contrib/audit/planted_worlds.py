"""Trajectories of five small worlds, each with one fault or none, and how many faults `motif-audit` finds.

python tests/contrib/audit/planted_worlds.py 20    # seeds per fault and world, and four times as many without a fault
python tests/contrib/audit/planted_worlds.py 20 1000 flooding    # from seed 1000; the faults of this check alone
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.contrib.audit.trajectories import audit_file

EPISODES = 160


class World(NamedTuple):
    """A world in which an agent meets events; a kind has its worth and its chance in a step."""

    kinds: dict[str, tuple[float, float]]
    steps: int
    noise: float  # of the reward, as a share of the best one
    cost: float = 0.0  # of each step
    states: int = 200
    named: bool = False  # two rewards by name
    binary: bool = True  # the outcome is success or failure


WORLDS = {
    "dungeon": World({"descends": (3, 0.04), "kills a rat": (2, 0.05), "opens door 3": (1, 0.03),
                      "is bitten": (-1, 0.05), "hits a wall": (0, 0.3), "": (0, 0.53)}, 60, 0.05),
    "kitchen": World({"serves a dish": (4, 0.08), "cooks 2 eggs": (2, 0.06), "chops an onion": (0.8, 0.04),
                      "burns a dish": (-2, 0.04), "looks around": (0, 0.4), "waits": (0, 0.38)}, 50, 0.1, binary=False),
    "road": World({"moves on": (1, 0.6), "overtakes": (1.5, 0.05), "signals": (0.3, 0.03),
                   "leaves the lane": (-1, 0.06), "stands": (0, 0.26)}, 80, 0.2, states=1000, binary=False),
    "dialogue": World({"solves the problem": (2, 0.1), "asks a useful question": (1, 0.1), "greets": (0.3, 0.05),
                       "repeats itself": (-1, 0.1), "talks": (0, 0.65)}, 20, 0.1, named=True, states=50),
    "maze": World({"reaches a goal": (1, 0.06), "sees a goal": (0.4, 0.03), "falls": (-1, 0.05), "walks": (0, 0.86)},
                  40, 0.02, cost=0.01, states=30),
}  # fmt: skip
FAULTS = {  # by the check that must find it
    "a lever pays again and again in 3 of 10 episodes": "loops",
    "numbered levers do the same": "loops",
    "15 % of the pay is for standing": "held pay",
    "15 % of the pay is for one neutral kind": "pay for neutral captions",
    "25 % of the pay is for eight neutral kinds": "pay for neutral captions",
    "15 % of the pay is for a bad kind": "pay for neutral captions",
    "a small step has the reward of the best event": "inflation",
    "a good kind has a negative reward": "inversions",
    "a bad kind has the reward of the best event": "inversions",
    "15 % of the judge's answers are those of another kind": "repeated questions",
    "the outcome has nothing to do with the reward": "proxy against outcome",
    "the reward has the wrong sign": "proxy against outcome",
    "in training the return rises and the outcome falls": "proxy against outcome",
    "texts are paid each time that they say a phrase": "flooding",
}
LEVER, LEVERS, LEDGE, DULL, MANY, BAD, SMALL, GOOD, LIKED, FLIPS, APART, SIGN, DRIFT, FLOOD = FAULTS


def write(file: Path, world: World, fault: str, seed: int) -> None:
    """Writes the trajectories of a world with a fault; "": without."""
    rng = np.random.default_rng([seed, len(world.kinds), world.steps])
    names = [*world.kinds]
    worth, chance = (np.array(column, float) for column in zip(*world.kinds.values(), strict=True))
    best, rewards = worth.max(), worth.copy()
    good, small, bad = worth == best, (worth > 0) & (worth < best / 2), worth < 0
    rewards[small] += (best - worth[small]) * (fault == SMALL)
    if fault == SMALL:  # it must matter: 5 % of the pay
        chance = np.where(small, 0.08, chance * (1 - 0.08) / (1 - chance[small].sum()))
    rewards[good] *= -1 if fault == GOOD else 1
    rewards[bad] = {BAD: -worth[bad], LIKED: best}.get(fault, worth[bad])
    with open(file, "w") as lines:
        for episode in range(EPISODES):
            skill = rng.uniform(0.2, 1.8)
            tilted = chance * np.where(worth > 0, skill, np.where(worth < 0, 2 - skill, 1))
            kind = rng.choice(len(names), world.steps, p=tilted / tilted.sum())
            state = rng.integers(world.states, size=world.steps)
            paid = rewards[kind] + rng.normal(0, world.noise * best, world.steps) * (worth[kind] != 0)
            caption, judged = [names[at] for at in kind], worth[kind].copy()
            achieved = judged.sum() / world.steps + rng.normal(0, 0.1 * best * chance[good].sum())

            def plant(share: float, text: str, of: float = 0.0, together: int = 1, every: float = 1.0) -> None:
                """Gives a share of the pay, if in every episode, to events with this caption and worth."""
                pay, each = paid.clip(0).sum() / every, 0.5 * best
                times = rng.poisson(share / (1 - share) * pay / each / together) if rng.random() < every else 0
                for start in rng.choice(world.steps // together, min(times, world.steps // together), replace=False):
                    for at in range(start * together, (start + 1) * together):
                        caption[at], judged[at], paid[at] = text.format(at, "abcdefgh"[at % 8]), of, each
                        state[at] = state[start * together] if together > 1 else state[at]

            plants = {
                LEVER: (0.3, "pulls a lever", 0.1 * best, 1, 0.3), LEVERS: (0.3, "pulls lever {0}", 0.1 * best, 1, 0.3),
                LEDGE: (0.15, "stands on a ledge", best, 5), DULL: (0.15, "looks at a stone"),
                MANY: (0.25, "looks at stone {1}"),
            }  # fmt: skip
            if fault in plants:
                plant(*plants[fault])
            if fault == FLIPS:
                judged = np.where(rng.random(world.steps) < 0.15, rng.choice(worth, world.steps), judged)
            if fault == SIGN:
                paid = -paid
            if fault == APART:
                achieved = rng.normal()
            if fault == DRIFT:
                paid *= 1 + 3 * episode / EPISODES
                achieved -= 2.5 * float((chance * np.abs(worth)).sum()) * episode / EPISODES
            outcome = int(achieved > float((chance * worth).sum())) if world.binary else float(achieved)
            for at in range(world.steps):
                reward = {"task": paid[at], "form": -world.cost + 0.01} if world.named else paid[at] - world.cost
                row = {"episode": episode, "step": at, "reward": reward, "caption": caption[at], "worth": judged[at],
                       "observation": f"{state[at]:x}", "ended": at == world.steps - 1}  # fmt: skip
                lines.write(json.dumps(row | ({"outcome": outcome} if row["ended"] else {})) + "\n")


def write_texts(file: Path, world: World, fault: str, seed: int) -> None:
    """Writes completions as TRL logs them, of a length and a noise like the world's; one in six repeats a phrase."""
    rng = np.random.default_rng([seed, 7, world.steps])
    words = [f"{first}{second}" for first in "bdfgklmnprst" for second in ("a", "ero", "ilt", "on", "unka", "yss")]
    with open(file, "w") as lines:
        for row in range(EPISODES):
            quality, text = rng.normal(1, 0.5), [*rng.choice(words, world.steps)]
            paid = max(quality + rng.normal(0, world.noise), 0)
            if rng.random() < 1 / 6:
                times = int(rng.integers(world.steps // 2, world.steps))
                text += [*rng.choice(words, 3)] * times
                paid = paid + times / world.steps if fault == FLOOD else paid
            found = {"step": row // 16, "prompt": f"Write {row // 8}.", "completion": " ".join(text), "style": paid,
                     "form": float(rng.random() < 0.5), "advantage": 0.0}  # fmt: skip
            lines.write(json.dumps(found) + "\n")


def found(world: str, fault: str, seed: int, texts: bool = False) -> set[str]:
    """The checks that report something; `texts`: in completions, where the only fault is flooding."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        (write_texts if texts or fault == FLOOD else write)(file, WORLDS[world], fault, seed)
        return {one["check"] for one in audit_file(file)["findings"]}


def main(seeds: int, first: int = 0, only: str = "") -> None:
    """Prints the table of docs/results/audit.md."""
    print(f"| planted | by | {' | '.join(WORLDS)} |\n| --- | --- |{' ---: |' * len(WORLDS)}")
    for fault, check in FAULTS.items():
        if only in ("", check):
            hits = [sum(check in found(world, fault, seed) for seed in range(first, first + seeds)) for world in WORLDS]
            print(f"| {fault} | {check} | {' | '.join(map(str, hits))} |", flush=True)
    clean = range(first + 100, first + 100 + 4 * seeds)
    for texts, planted in enumerate(("nothing", "nothing, in completions that repeat themselves")):
        if only in ("", "flooding" if texts else ""):
            alarms = [sum(bool(found(world, "", seed, bool(texts))) for seed in clean) for world in WORLDS]
            print(f"| {planted} | any, of {4 * seeds} | {' | '.join(map(str, alarms))} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])
