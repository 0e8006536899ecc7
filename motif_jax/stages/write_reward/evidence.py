"""Recorded episodes on which programs are tried, and pairs of them for the judge."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.actors.acting import answer, make_batch
from motif_jax.actors.pool import ActorPool
from motif_jax.captions import decode
from motif_jax.envs.world import SeedStream, waited
from motif_jax.envs.worlds import make_world
from motif_jax.rewards.code.grammar import Program, check
from motif_jax.rewards.code.names import CAPTION, MOMENT, NUMBER, TEXTS, Readable
from motif_jax.rewards.code.running import ALWAYS, Runner
from motif_jax.rewards.source import Arrays
from motif_jax.stages.write_reward import FLAG, WriteConfig
from motif_jax.structs import UserError

GAMES, ROLLOUT = 8, 100
COUNT = "event_message_count"


class RecordedEpisodes(NamedTuple):
    """Episodes that were played to their end."""

    rollouts: list[Arrays]  # in the order in which they were played. [T + 1, B, ...]
    episodes: list[np.ndarray]  # the episode of each step; -1: of one without an end. [T, B] for each rollout
    captions: list[list[str]]  # of each episode, what its steps led to

    def whole(self, parts: Iterable[np.ndarray]) -> np.ndarray:
        """Of the values of each rollout's steps, [T, B, ...], those of whole episodes. [N, ...]"""
        return np.concatenate([part[episode >= 0] for part, episode in zip(parts, self.episodes, strict=True)])

    def column(self, name: str) -> np.ndarray:
        """What was recorded of all steps of whole episodes. [N, ...]"""
        return self.whole(rollout[name] for rollout in self.rollouts)

    def pay(self, program: Program) -> np.ndarray:
        """The rewards of all steps of whole episodes by a program. [N]"""
        return self.whole(map(Runner(program).rewards, self.rollouts))

    def returns(self, pay: np.ndarray) -> np.ndarray:
        """The sum of each episode. [N] -> [E]"""
        return np.bincount(self.whole(self.episodes), pay, len(self.captions))

    def distinct(self, steps: np.ndarray) -> Iterator[tuple[int, str]]:
        """Yields those of these steps that show another caption than the earlier ones, with their captions."""
        captions, seen = self.column(CAPTION), {""}
        for step in steps.tolist():
            if (caption := decode(captions[step])) not in seen:
                seen.add(caption)
                yield step, caption

    def with_others(self, others: RecordedEpisodes) -> RecordedEpisodes:
        moved = [np.where(one >= 0, one + len(self.captions), -1) for one in others.episodes]
        return RecordedEpisodes(self.rollouts + others.rollouts, self.episodes + moved, self.captions + others.captions)

    def repeated(self, times: int) -> np.ndarray:
        """Whether the episode has shown a step's caption more than `times` times before. [N] bool"""
        return self.whole((one[CAPTION][..., 0] > 0) & (one[COUNT] > times + 1) for one in self.rollouts)

    def texts(self, readable: Readable) -> list[str]:
        """All captions, and all other texts that programs read."""
        texts = dict.fromkeys(caption for captions in self.captions for caption in captions)
        for name in dict.fromkeys(entry.observation for entry in readable.entries.values() if entry.type == TEXTS):
            rows = np.concatenate([rollout[name].reshape(-1, rollout[name].shape[-1]) for rollout in self.rollouts])
            texts |= dict.fromkeys(map(decode, np.unique(rows, axis=0)))
        return [*texts]

    def choose_pairs(self, count: int, seed: int) -> np.ndarray:
        """Random pairs of different episodes, none twice. [P, 2]"""
        ended = len(self.captions)
        rng, pairs = np.random.default_rng([seed, 29]), dict[tuple[int, int], None]()
        for _ in range(20 * count if ended > 1 else 0):
            first, second = rng.choice(ended, 2, replace=False).tolist()
            if (second, first) not in pairs and self.captions[first] != self.captions[second]:
                pairs[first, second] = None
            if len(pairs) == count:
                break
        if len(pairs) < 4:
            raise UserError(
                f"of the {ended} recorded episodes that have ended, too few differ to make pairs: record more steps, "
                f"or shorter episodes ({FLAG}.steps, .players, --config.env.max_episode_steps)"
            )
        return np.array(list(pairs))

    def ranges(self, readable: Readable) -> dict[str, str]:
        """The least and the largest recorded value of each number."""
        names = [name for name, entry in readable.entries.items() if entry.type == NUMBER]
        values = {name: self.pay(check(name, readable)) for name in names}
        return {name: f"{one.min():.4g} to {one.max():.4g}" for name, one in values.items() if len(one)}

    def moments(self, readable: Readable, count: int = 3) -> list[str]:
        """Recorded steps with different captions, in words: first paid ones, then those with most changes."""
        entries = readable.entries.items()
        names = [name for name, entry in entries if (entry.type, entry.of) == (NUMBER, MOMENT)]
        paid = self.column("reward")
        gained = {name: self.pay(check(f"gained({name})", readable)) for name in names}
        changes = sum((one != 0 for one in gained.values()), np.zeros(len(paid), int))
        told = []
        for step, caption in itertools.islice(self.distinct(np.lexsort((-changes, -np.abs(paid)))), count):
            more = [f"{name} {one[step]:+.4g}" for name, one in gained.items() if one[step]]
            told.append(f"{caption!r}: {', '.join([*more, f'the game pays {paid[step]:.3g}'])}")
        return told


def record_episodes(
    config: WriteConfig, readable: Readable, agents: Sequence[Path] = (), first_episode: int = 0
) -> RecordedEpisodes:
    """Plays episodes by scripted players, or by the agents of these workdirs, and keeps what programs may read."""
    section, policy, games = config.write_reward, None, max(GAMES, len(agents))
    if agents:
        from motif_jax.policies.choice import LAST, Mixture, PlayerChoice
        from motif_jax.rewards.sources import trusted_classes

        choices = [PlayerChoice(str(agent), LAST, 1.0) for agent in agents]
        trusted = trusted_classes(config, config.policy.network)
        policy = Mixture(
            choices, make_world(config.env), num_workers=0, games_per_worker=games, seed=config.seed, trusted=trusted,
            flag=FLAG,
        )  # fmt: skip
    needs = {name for entry in readable.entries.values() for name in entry.observations} | {CAPTION, COUNT}
    keys = (*sorted(needs), *ALWAYS, "game", "reward")
    rollouts: list[Arrays] = []
    with ActorPool(
        config.env, tuple(sorted({*needs, *(policy.reads if policy else ())})), num_workers=0, games_per_worker=games,
        groups=policy.groups if policy else 2, rollout_length=ROLLOUT, player="" if policy else section.players,
        seed=config.seed, stream=SeedStream.COLLECT, first_episode=first_episode, flag=FLAG,
    ) as pool:  # fmt: skip
        steps = 0
        while steps < section.steps:
            requests, full = pool.poll()
            if policy:
                answer(pool, requests, policy)
            for rollout in full:
                arrays = make_batch(pool, [rollout], lambda arrays: arrays, pool.timers).arrays
                rollouts.append({key: arrays[key] for key in keys})
                steps += arrays["reward"].size
    return by_episode(rollouts)


def by_episode(rollouts: list[Arrays]) -> RecordedEpisodes:
    """Numbers the episodes that have ended; those without an end have too few steps to be compared."""
    episodes = [np.full(rollout["action"].shape[:2], -1) for rollout in rollouts]
    running: dict[int, list[tuple[int, int, int]]] = {}  # of each game, the steps so far
    captions: list[list[str]] = []
    for number, rollout in enumerate(rollouts):
        played = ~waited(rollout["action"])
        ended = rollout["terminated"] | rollout["truncated"]
        for column, game in enumerate(rollout["game"][0].tolist()):
            for step in range(len(played)):
                if rollout["first"][step, column]:
                    running[game] = []
                if played[step, column]:
                    running.setdefault(game, []).append((number, step, column))
                if ended[step, column] and running.get(game):
                    places = running.pop(game)
                    captions.append([decode(rollouts[at][CAPTION][row, at_column]) for at, row, at_column in places])
                    for at, row, at_column in places:
                        episodes[at][row, at_column] = len(captions) - 1
    return RecordedEpisodes(rollouts, episodes, captions)


class Pairs(NamedTuple):
    """Pairs of episodes, and which of each the judge prefers."""

    episodes: np.ndarray  # [P, 2]
    judged: np.ndarray  # P(the second is better); NaN: without a verdict. [P]

    def decided(self) -> list[list[int]]:
        """Of the pairs with a preference, the better episode and the worse one."""
        clear = ~np.isnan(self.judged) & (self.judged != 0.5)
        ordered = np.where(self.judged[:, None] > 0.5, self.episodes[:, ::-1], self.episodes)
        return ordered[clear].tolist()

    def agreement(self, returns: np.ndarray) -> float:
        """The share of the pairs with a verdict in which the higher return is the judge's; equal returns are a half."""
        if not (decided := self.decided()):
            return float("nan")
        better, worse = returns[np.array(decided)].T
        return float((np.sign(better - worse) / 2 + 0.5).mean())
