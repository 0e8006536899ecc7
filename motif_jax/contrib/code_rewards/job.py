"""The loop of proposals, trials on recorded episodes and revisions. All programs are kept, so a killed run resumes."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.actors.acting import answer, make_batch
from motif_jax.actors.pool import ActorPool
from motif_jax.annotation.backends import OpenBackend, find_backend, opened
from motif_jax.annotation.prompts import goal_text
from motif_jax.annotation.verdicts import PairPlan, episode_text
from motif_jax.captions import decode
from motif_jax.config.table import shown
from motif_jax.console import clean, print_line
from motif_jax.contrib.code_rewards.grammar import Program, ProgramError, check
from motif_jax.contrib.code_rewards.guide import is_plain, longest_phrase
from motif_jax.contrib.code_rewards.names import CAPTION, MOMENT, NUMBER, TEXTS, Readable, find_readable
from motif_jax.contrib.code_rewards.running import ALWAYS, Runner
from motif_jax.contrib.code_rewards.sections import MODEL, SCRIPTED
from motif_jax.contrib.code_rewards.source import BEST, WRITTEN
from motif_jax.contrib.code_rewards.stage import FLAG, STAGE_NAME, TITLE, WriteConfig, stages_of
from motif_jax.contrib.code_rewards.writers import Attempt, Brief, Writer, open_writer
from motif_jax.envs.texts import texts_of
from motif_jax.envs.world import SeedStream, waited
from motif_jax.envs.worlds import make_world
from motif_jax.files import write_whole
from motif_jax.pages.blocks import Block, Heading, Listed, Paragraph, Table, Text, Tiles, Verbatim, code
from motif_jax.pages.players import read_results
from motif_jax.rewards.source import Arrays, Setting
from motif_jax.run import Facts, Run
from motif_jax.stages.annotate import ask_pairs
from motif_jax.structs import UserError

GAMES, ROLLOUT = 8, 100
COUNT = "event_message_count"
KEPT = 2_000  # characters of a text with an error
LONGEST_SHOWN = 500  # characters of a program in the table
IDLE, MANY = 0.1, 0.5
OFTEN = 5
WEIGHT = 0.1  # of a finding against agreement: as much as a tenth of the pairs
MOMENTS = 2  # captions that a finding names
ADDED = 3  # captions that a program is told to pay
LINES = 12  # of an episode that the writer reads


# ---- recorded episodes on which programs are tried, and pairs of them for the judge


class RecordedEpisodes:
    """Episodes that were played to their end; their N steps are in the order of the rollouts."""

    def __init__(self, rollouts: list[Arrays], episodes: list[np.ndarray]):
        """`rollouts`: [T + 1, B, ...]; `episodes`: of their steps, [T, B]; -1: of one without an end."""
        self.rollouts, self._episodes = rollouts, episodes
        self.episode = self.whole(episodes)  # of each step. [N]
        known = dict[bytes, str]()  # captions repeat
        self.shown = [  # what each step led to
            known.get(key := row.tobytes()) or known.setdefault(key, decode(row)) for row in self.column(CAPTION)
        ]
        self.captions: list[list[str]] = [[] for _ in range(self.episode.max(initial=-1) + 1)]  # of each episode
        for episode, caption in zip(self.episode.tolist(), self.shown, strict=True):
            self.captions[episode].append(caption)

    def whole(self, parts: Iterable[np.ndarray]) -> np.ndarray:
        """Of the values of each rollout's steps, [T, B, ...], those of whole episodes. [N, ...]"""
        return np.concatenate([part[episode >= 0] for part, episode in zip(parts, self._episodes, strict=True)])

    def column(self, name: str) -> np.ndarray:
        """What was recorded of each step. [N, ...]"""
        return self.whole(rollout[name] for rollout in self.rollouts)

    def pay(self, program: Program) -> np.ndarray:
        """The rewards of all steps by a program. [N]"""
        return self.whole(map(Runner(program).rewards, self.rollouts))

    def returns(self, pay: np.ndarray) -> np.ndarray:
        """The sum of each episode. [N] -> [E]"""
        return np.bincount(self.episode, pay, len(self.captions))

    def distinct(self, steps: np.ndarray) -> Iterator[tuple[int, str]]:
        """Yields those of these steps that show another caption than the earlier ones, with their captions."""
        seen = {""}
        for step in steps.tolist():
            if (caption := self.shown[step]) not in seen:
                seen.add(caption)
                yield step, caption

    def where(self, weights: np.ndarray) -> str:
        """The captions of the steps with the largest weights, in words. [N]"""
        steps = np.argsort(-weights, kind="stable")[:500]
        distinct = self.distinct(steps[weights[steps] > 0])
        found = [repr(caption) for _, caption in itertools.islice(distinct, MOMENTS)]
        return f" (at {' and at '.join(found)})" if found else ""

    def with_others(self, others: RecordedEpisodes) -> RecordedEpisodes:
        moved = [np.where(one >= 0, one + len(self.captions), -1) for one in others._episodes]
        return RecordedEpisodes(self.rollouts + others.rollouts, self._episodes + moved)

    def texts(self, readable: Readable) -> list[str]:
        """All captions, and all other texts that programs read."""
        texts = dict.fromkeys(itertools.chain.from_iterable(self.captions))
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
    section, policy, games = config.code_rewards, None, max(GAMES, len(agents))
    if agents:
        from motif_jax.policies.choice import LAST, Mixture, PlayerChoice, find
        from motif_jax.rewards.source import trusted_classes

        policy = Mixture(
            find([PlayerChoice(str(agent), LAST, 1.0) for agent in agents], FLAG), make_world(config.env),
            num_workers=0, games_per_worker=games, seed=config.seed,
            trusted=trusted_classes(config, config.policy.network), flag=FLAG,
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
    return RecordedEpisodes(rollouts, number_episodes(rollouts))


def number_episodes(rollouts: list[Arrays]) -> list[np.ndarray]:
    """Numbers the episodes that have ended; those without an end, -1, have too few steps to be compared."""
    numbers = [np.full(rollout["action"].shape[:2], -1) for rollout in rollouts]
    running = defaultdict[int, list[np.ndarray]](list)  # of each game, the numbers of the steps so far
    ends = itertools.count()
    for rollout, number in zip(rollouts, numbers, strict=True):
        played = ~waited(rollout["action"])
        ended = rollout["terminated"] | rollout["truncated"]
        for column, game in enumerate(rollout["game"][0].tolist()):
            for step in range(len(played)):
                if rollout["first"][step, column]:
                    running[game] = []
                if played[step, column]:
                    running[game].append(number[step, column : column + 1])
                if ended[step, column] and running[game]:
                    end = next(ends)
                    for one in running.pop(game):
                        one[:] = end
    return numbers


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


def liked_captions(captions: Sequence[Sequence[str]], pairs: Pairs) -> list[str]:
    """Captions that a program can look for, by how much more often preferred episodes show them."""
    surplus = Counter[str]()
    for better, worse in pairs.decided():
        surplus.update(dict.fromkeys(captions[better], 1))
        surplus.subtract(dict.fromkeys(captions[worse], 1))
    liked = [caption for caption in surplus if surplus[caption] > 0 and is_plain(caption) and 0 < len(caption) <= 80]
    return sorted(liked, key=lambda one: -surplus[one])[:8]


# ---- results of a program on recorded episodes, in sentences for its writer and for people

Figures = dict[str, list[float]]  # means of a trained agent and of random play


@dataclass
class Tried:
    """A program and its results."""

    program: Program
    findings: list[str]  # its defects
    figures: dict[str, Any]
    paid: bytes  # the steps that are paid, as bits
    trained: Figures | None = None  # of a short training
    worth: tuple[float, ...] = ()
    row: dict[str, Any] = field(default_factory=dict)  # its row of the record

    @property
    def is_reward(self) -> bool:
        """Whether it can be the best: it is not constant, and agrees with the judge at least as often as a coin."""
        return self.figures["spread"] > 0 and self.figures["agreement"] >= 0.5

    @property
    def key(self) -> str:
        """Equal for programs that pay the same on the recorded episodes, so that one of them is trained."""
        return repr(self.figures)

    @property
    def rank(self) -> tuple[bool, bool, tuple[float, ...], float]:
        """The key of the ranking, higher is better: its training, then agreement minus WEIGHT for each finding."""
        agreement = 0.0 if np.isnan(self.figures["agreement"]) else self.figures["agreement"]
        return self.is_reward, self.figures["spread"] > 0, self.worth, agreement - WEIGHT * len(self.findings)


@dataclass(frozen=True)
class Evidence:
    """What programs are tried on, and their results in sentences for the writer and for people."""

    recorded: RecordedEpisodes
    texts: list[str]  # of episodes
    readable: Readable
    choosing: Pairs  # these select programs
    telling: Pairs  # these evaluate the best
    brief: Brief
    learnt: np.ndarray | None  # the episodes' returns by the learnt reward. [num_episodes]

    def examine(self, program: Program) -> Tried:
        """Runs a program on all recorded episodes."""
        recorded, pairs = self.recorded, self.choosing
        steps = recorded.pay(program)
        returns = recorded.returns(steps)
        figures = {
            "agreement": pairs.agreement(returns), "spread": float(np.ptp(steps)), "mean_return": float(returns.mean()),
            "deviation_of_returns": float(returns.std()), "paid_steps": float((steps != 0).mean()),
            "equal_returns": float(np.mean(np.equal(*returns[pairs.episodes].T))),
        }  # fmt: skip
        if not figures["spread"]:
            moments = "; ".join(recorded.moments(self.readable, MOMENTS))
            kind = "paid the same everywhere" if steps[0] else "never paid"
            findings = [f"{kind}: it pays the same in every step ({steps[0]:.3g}), also at {moments}"]
        else:
            if game := float(np.abs(recorded.column("reward")).sum()):
                figures["over_game"] = float(np.abs(steps).sum()) / game
            findings = [*self._findings(steps, returns, figures)]
            if self.learnt is not None:
                compared, finding = compare_with_learnt(returns, self.learnt, pairs, figures["agreement"])
                figures |= compared
                findings += [finding] if finding else []
        return Tried(program, findings, figures, np.packbits(steps != 0).tobytes())

    def _findings(self, steps: np.ndarray, returns: np.ndarray, figures: Mapping[str, float]) -> Iterator[str]:
        """Yields the defects of a program by its rewards, which are not constant. [N], [num_episodes]"""
        recorded, size, positive = self.recorded, np.abs(steps), np.maximum(steps, 0.0)
        total = float(positive.sum()) or 1.0
        if (share := figures["paid_steps"]) < 0.0001:
            where = recorded.where(size)
            yield f"sparse: it pays in {share:.3%} of the steps{where}: an agent will hardly ever meet it"
        if self.readable.still:
            idle = recorded.pay(check("still()", self.readable)) > 0
            if (share := float(positive[idle].sum() / total)) > IDLE:
                where = f"steps that change nothing{recorded.where(positive * idle)}"
                yield f"paid for standing still: {share:.0%} of its pay is for {where}: subtract still()"
        repeated = (recorded.column(CAPTION)[:, 0] > 0) & (recorded.column(COUNT) > OFTEN + 1)
        if (share := float(positive[repeated].sum() / total)) > MANY:
            where = f"{OFTEN} times before{recorded.where(positive * repeated)}"
            yield (
                f"paid again and again: {share:.0%} of its pay is for captions that the episode has shown more than "
                f"{where}: pay for the first time alone, with once(...)"
            )
        if (share := float((steps > 0).mean())) > MANY:
            steps_paid = f"{share:.0%} of the steps"
            yield f"paid for length: it pays in {steps_paid}: longer episodes are paid more, whatever happens"
        reached = recorded.returns(recorded.column("reward")) > 0
        if min(int(reached.sum()), int((~reached).sum())) >= 2:
            usual = float(np.median(returns[reached]))
            early = (returns >= usual) & (returns > 0) & ~reached
            if (share := float(early.sum() / (~reached).sum())) > IDLE:
                where = recorded.where(np.where(early[recorded.episode], steps, 0))
                yield (
                    f"paid before the goal: {share:.0%} of the episodes without the game's reward get as much as those "
                    f"with it ({usual:.3g}){where}: pay less there, or more for the goal"
                )
        if (highest := float(size.max())) > 100:
            where = recorded.where(size)
            yield f"out of scale: its largest reward is {highest:.3g}{where}: other rewards are about 1, so divide it"
        if (share := figures.get("over_game", 1.0)) < 0.01:  # more is no defect where the game hardly pays
            yield f"out of scale: it pays {share:.3g} times as much as the game's own reward: multiply it"
        if (share := figures["equal_returns"]) > MANY:
            yield f"sparse: {share:.0%} of the pairs of episodes have equal returns by it"

    def describe(self, tried: Tried, agent: Sequence[str] = ()) -> list[str]:
        """The results: how an agent played, then pairs of episodes about which program and judge disagree.

        Small models read only the beginning.
        """
        steps = self.recorded.pay(tried.program)
        returns = self.recorded.returns(steps)
        lines = [f"agrees with the judge about {tried.figures['agreement']:.0%} of the pairs of episodes"]
        lines += [*self._unpaid(steps), *tried.findings, *agent]
        wrong = [(better, worse) for better, worse in self.choosing.decided() if returns[better] <= returns[worse]]
        return lines + [
            f"the judge prefers this episode, which it pays {returns[better]:.3g}:\n{_beginning(self.texts[better])}\n"
            f"to this one, which it pays {returns[worse]:.3g}:\n{_beginning(self.texts[worse])}"
            for better, worse in wrong[:2]
        ]

    def _unpaid(self, steps: np.ndarray) -> Iterator[str]:
        """Sentences about captions of preferred episodes at which a program pays nothing, or takes away. [N]"""
        shown = self.recorded.shown
        paid, charged = ({shown[step] for step in np.flatnonzero(sign * steps > 0)} for sign in (1, -1))
        liked = [caption for caption in self.brief.liked if caption not in paid]
        terms = {caption: f'once(says("{longest_phrase(caption)}"))' for caption in liked}
        for caption in [caption for caption in terms if caption in charged][:ADDED]:
            yield f"it takes away at a caption of better episodes: write + {terms.pop(caption)} in place of -"
        if added := [*terms.values()][:ADDED]:
            number = f"{len(added)} caption{'s' * (len(added) > 1)}"
            yield f"it pays nothing at {number} of better episodes: add + {' + '.join(added)}"


def _beginning(text: str) -> str:
    lines = [f"    {line}" for line in text.splitlines()]
    return "\n".join(lines[:LINES] + [f"    ({len(lines) - LINES} more lines)"] * (len(lines) > LINES))


# ---- the loop


def write(config: WriteConfig, workdir: Path, open_backend: OpenBackend = opened) -> None:
    """Writes programs, tries them, and keeps the best as `best.reward`. `open_backend` opens the judge."""
    with Run(workdir).stage(STAGE_NAME, STAGE_NAME) as stage:
        stage.bind(config)
        loop = Loop(config, workdir, open_backend)
        loop.gather(record_episodes(config, loop.readable), "answers.json")
        with contextlib.closing(open_writer(config, loop.readable)) as writer:  # the judge's model is gone from memory
            best = loop.run(writer)
        recorded, telling, goal = loop.evidence.recorded, loop.evidence.telling, loop.evidence.brief.goal
        writer_name, program = config.code_rewards.writer, best.program.text
        others = telling.agreement(recorded.returns(recorded.pay(best.program)))
        results = {
            "goal": goal, "writer": writer_name, "model": config.annotate.model, "world": config.env["world"],
            "judge": config.annotate.backend, "rounds": loop.rounds, "found": best.is_reward,
            "best": {"program": program, "findings": best.findings, **best.figures},
            "agreement_on_others": others, "episodes": len(recorded.captions),
            "pairs": [len(loop.evidence.choosing.judged), len(telling.judged)],
        }  # fmt: skip
        stage.write("record", results)
        stage.section(TITLE, *blocks_of(results), after="The judge")
        stage.report(Facts(title="A reward, written as a program"))
        if best.is_reward:  # last, as the stage is complete when the file exists
            by = f"written by {writer_name}; agrees with the judge about {others:.0%} of {len(telling.judged)} pairs"
            heading = f"# {' '.join(goal.split())}\n# {by}\n".encode("ascii", "replace")
            write_whole(stage.path / BEST, heading + f"{program}\n".encode())
    if not best.is_reward:
        print_line(
            f"{STAGE_NAME}: no reward was found: each program pays the same in every step, or agrees with the judge "
            f"about fewer than half of the pairs ({FLAG}.proposals, .revisions, .writer)"
        )
        return
    print_line(f"{STAGE_NAME}: {shown(' '.join(program.split()))}")
    for finding in best.findings:
        print_line(f"{STAGE_NAME}: found: {finding}")
    print_line(
        f"{STAGE_NAME}: it agrees with the judge about {best.figures['agreement']:.0%} of the pairs that chose it and "
        f"{others:.0%} of {len(telling.judged)} others; --config.policy.sources=code:{STAGE_NAME}"
    )


def blocks_of(results: Mapping[str, Any]) -> list[Block]:
    """The report's part: the best program, and all that were tried."""
    best, (choosing, others) = results["best"], results["pairs"]
    by = "templates, which know nothing of games" if results["writer"] == SCRIPTED else results["model"]
    words = f"goal: {results['goal']} · written by {by} · judged by {results['judge']}"
    figures = [
        (_percent(best["agreement"]), f"of the {choosing:,} pairs of episodes that chose it have the judge's order"),
        (_percent(results["agreement_on_others"]), f"of {others:,} other pairs have it"),
    ]
    if "learnt_disagrees" in best:
        figures.append(
            (_percent(best["learnt_disagrees"]), "of the pairs are ordered differently by the learnt reward")
        )
    nothing: list[Block] = [Paragraph("Nothing found.", "soft")]
    found = [Paragraph("Found on recorded episodes:"), Listed(best["findings"])] if best["findings"] else nothing
    closest = [] if results["found"] else [Paragraph("No reward was found; this program came closest.")]
    rows = list[list[Text]]()
    for number, row in [(number, row) for number, tried in enumerate(results["rounds"]) for row in tried]:
        remarks = [*row.get("findings", ())]
        if trained := row.get("trained"):
            agent, random = trained["return"]
            remarks.append(f"an agent that was trained with it returns {agent:.3g} (random play: {random:.3g})")
        text = " ".join(row["program"].split())
        cut = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]} …"
        agreement = _percent(row.get("agreement"))
        rows.append([str(number), code(cut), agreement, "; ".join(remarks) or row["error"]])
    figures += [(f"{len(rows):,}", "programs tried"), (f"{results['episodes']:,}", "recorded episodes")]
    return [
        Paragraph(words, "soft"),
        *closest,
        Tiles(figures),
        Verbatim(best["program"]),
        *found,
        Heading("All programs"),
        Table(("round", "program", "agrees", "found, or why it cannot be read"), rows, numbers=(0, 2)),
    ]


def _percent(share: float | None) -> str:
    return "–" if share is None or np.isnan(share) else f"{share:.0%}"


class Loop:
    """The rounds of one run: agents that have learnt from a round's programs play for the judge and for the writer."""

    evidence: Evidence

    def __init__(self, config: WriteConfig, workdir: Path, open_backend: OpenBackend):
        self._config, self._section, self._workdir, self._open = config, config.code_rewards, workdir, open_backend
        self._folder, self._began, self._was_late = workdir / STAGE_NAME, time.monotonic(), False
        self.readable = find_readable(make_world(config.env))
        self.rounds: list[list[dict[str, Any]]] = []  # what is known of the programs of each
        self._trained: list[Tried] = []

    def _late(self) -> bool:
        """Whether `code_rewards.minutes` are over; says once that something is left out."""
        minutes = self._section.minutes
        if minutes and not self._was_late and time.monotonic() >= self._began + 60 * minutes:
            self._was_late = True
            print_line(f"{STAGE_NAME}: {minutes:g} minutes are over: the best so far counts ({FLAG}.minutes)")
        return self._was_late

    def gather(self, recorded: RecordedEpisodes, file: str) -> None:
        """Asks the judge about pairs of the episodes in both orders; `file` keeps its answers."""
        config, section, world = self._config, self._section, make_world(self._config.env)
        frequency = Counter(itertools.chain.from_iterable(recorded.captions))
        by_rules = find_backend(config.annotate).by_rules
        texts = [episode_text(captions, frequency, by_rules) for captions in recorded.captions]
        pairs, plan = recorded.choose_pairs(section.pairs, config.seed), PairPlan()
        both = plan.both((texts[first], texts[second]) for first, second in pairs.tolist())
        judged = ask_pairs(config, plan, self._folder / file, self._open, STAGE_NAME).mean(both)
        half = len(pairs) // 2
        choosing, telling = Pairs(pairs[:half], judged[:half]), Pairs(pairs[half:], judged[half:])
        print_line(
            f"{STAGE_NAME}: {len(recorded.captions):,} recorded episodes; the judge has verdicts about "
            f"{int((~np.isnan(choosing.judged)).sum())} of {half} pairs"
        )
        goal = section.goal or goal_text(texts_of(config.env, config.annotate.lexicon), config.annotate.goal).strip()
        del frequency[""]
        frequent, liked = dict(frequency.most_common(40)), liked_captions(recorded.captions, choosing)
        brief = Brief(goal, world.about, self.readable, frequent, liked)
        if section.writer == MODEL:
            brief = brief._replace(
                ranges=recorded.ranges(self.readable), moments=recorded.moments(self.readable),
                texts=recorded.texts(self.readable) if section.texts == "recorded" else (),
            )  # fmt: skip
        learnt = learnt_returns(config, self._workdir, recorded, world)
        self.evidence = Evidence(recorded, texts, self.readable, choosing, telling, brief, learnt)

    def run(self, writer: Writer) -> Tried:
        """Runs all rounds; returns the best program."""
        section, best, earlier = self._section, None, list[Attempt]()
        for number in range(1 + section.revisions):
            if self.rounds and self._late():
                break
            folder = self._folder / f"round-{number}"
            tried = self._write_programs(writer, earlier, folder)
            agents = self._train_best(tried, folder) if section.train_for_env_steps else []
            best = max([*([best] if best else []), *tried], key=lambda one: one.rank, default=None)
            rows = self.rounds[-1]
            if best is None:
                raise UserError(
                    f"none of {section.proposals} programs could be read after {section.attempts} attempts each; the "
                    f"last error: {rows[-1]['error']} (--config.code_rewards.writer, .attempts)"
                )
            print_line(f"{STAGE_NAME}: round {number}: {len(tried)} of {len(rows)} programs can be read; the best "
                       f"agrees with the judge about {best.figures['agreement']:.0%} of the pairs")  # fmt: skip
            if agents and number < section.revisions and not self._late():
                self.see_agents(agents, f"answers-{number + 1}.json")
                known = [replace(self.evidence.examine(one.program), trained=one.trained, worth=one.worth)
                         for one in (best, *self._trained)]  # fmt: skip
                best, self._trained = max(known, key=lambda one: one.rank), known[1:]
            agent = [describe_training(best.trained, section.train_for_env_steps)] if best.trained else []
            figures = [f"{name.replace('_', ' ')}: {figure:.3g}" for name, figure in best.figures.items()]
            lines = self.evidence.describe(best, agent) if section.feedback == "diagnoses" else figures + agent
            earlier = [Attempt(best.program.text, "\n".join(f"- {line}" for line in lines))]
        assert best is not None
        return best

    def _write_programs(self, writer: Writer, earlier: Sequence[Attempt], folder: Path) -> list[Tried]:
        """The programs of a round that can be read; adds all of its programs to `rounds`."""
        brief = self.evidence.brief._replace(tried=[row["program"] for rows in self.rounds for row in rows])
        tried, rows = list[Tried](), list[dict[str, Any]]()
        for number in range(self._section.proposals):
            if (tried or earlier) and self._late():  # without any program there is no best one
                break
            file = folder / f"program-{number}.reward"
            text, problem = propose(writer, brief, earlier, number, self._section.attempts, file)
            rows.append({"program": text, "error": problem})
            if not problem:
                one = self.evidence.examine(check(text, self.readable))
                rows[-1] |= {"findings": one.findings, **one.figures}
                tried.append(replace(one, row=rows[-1]))
        self.rounds.append(rows)
        return tried

    def _train_best(self, tried: Sequence[Tried], folder: Path) -> list[Path]:
        """Trains agents with the best programs of a round; adds their figures everywhere, and returns their workdirs.

        Rewards without a training, the best first, but those last that pay at the same steps as another one.
        """
        first, last, agents = list[Tried](), list[Tried](), list[Path]()
        seen, keys = {one.paid for one in self._trained}, {one.key for one in self._trained}
        for one in sorted((one for one in tried if one.is_reward), key=lambda one: one.rank, reverse=True):
            if one.key not in keys:
                (last if one.paid in seen else first).append(one)
                seen.add(one.paid)
                keys.add(one.key)
        for one in (first + last)[: self._section.trainings]:
            if self._late():
                break
            agents.append(folder / f"training-{len(agents)}")
            one.trained, one.worth = train(self._config, one.program, agents[-1])
            self._trained.append(one)
        known = {one.key: one for one in self._trained}
        for one in tried:
            if same := known.get(one.key):
                one.trained = one.row["trained"] = same.trained
                one.worth = same.worth
        return agents

    def see_agents(self, agents: Sequence[Path], file: str) -> None:
        """Adds episodes of these agents to the evidence."""
        recorded = self.evidence.recorded
        played = record_episodes(self._config, self.readable, agents, len(recorded.captions))
        self.gather(recorded.with_others(played), file)


def propose(
    writer: Writer, brief: Brief, earlier: Sequence[Attempt], number: int, attempts: int, file: Path
) -> tuple[str, str]:
    """A valid program and "", or the last text and its error. `file`: keeps the program, also of a killed run."""
    if file.exists():
        with contextlib.suppress(ProgramError):  # of a grammar that has become narrower
            check(text := file.read_text(), brief.readable)
            return text, ""
    tries, text, problem = earlier, "", ""
    for _ in range(attempts):
        text = writer.propose(brief, tries, number)
        text = "\n".join(clean(line, KEPT) for line in text[:KEPT].splitlines())  # without control characters
        try:
            check(text, brief.readable)
        except ProgramError as error:
            problem = str(error)
            tries = [*earlier, Attempt(text, f"- it cannot be read: {problem}")]
        else:
            write_whole(file, text.encode())
            return text, ""
    return text, problem


# ---- a short training with a program, in a workdir of its own


def train(config: WriteConfig, program: Program, workdir: Path) -> tuple[Figures, tuple[float, ...]]:
    """Trains and evaluates an agent, or resumes a killed run.

    Returns its figures, and the lower ends of the intervals of code_rewards.chosen_by: luck in few games does not
    choose.
    """
    best = workdir / WRITTEN / BEST
    if best.exists() and best.read_text() != program.text:  # this run ranks the programs otherwise
        shutil.rmtree(workdir)
    write_whole(best, program.text.encode())
    for stage, view in stages_of(config):
        if not stage.is_complete(view, workdir):
            stage.run(view, workdir)
    by_player: dict[str, dict[str, Any]] = {}
    for player, summary in read_results(workdir).items():
        figures = {name: figure for name, figure in summary["figures"].items() if figure}
        counts = {f"'{name}'": figure for name, figure in summary["did"].items()}
        by_player["random" if player == "random" else "agent"] = figures | counts
    agent, random = by_player["agent"], by_player["random"]
    never = {"mean": 0.0}  # what never happened is not counted
    chosen = [agent.get(by) or agent.get(f"'{by}'") or never for by in config.code_rewards.figures]
    names = [name for name in agent | random if name != "intrinsic_return"]
    means = {name: [agent.get(name, never)["mean"], random.get(name, never)["mean"]] for name in names}
    return means, tuple(one["mean"] if (low := one.get("low")) is None else low for one in chosen)


def describe_training(figures: Figures, steps: int) -> str:
    """The results of a training, for the writer."""

    def change(name: str) -> float:
        agent, random = map(abs, figures[name])
        return (max(agent, random) + 1e-3) / (min(agent, random) + 1e-3)

    lines = [f"    {name}: {figures[name][0]:.3g} ({figures[name][1]:.3g})"
             for name in sorted(figures, key=change, reverse=True)[:12]]  # fmt: skip
    return "\n".join([f"an agent that learnt from it for {steps:,} steps, per episode (random play):", *lines])


# ---- beside the learnt reward


def learnt_returns(config: WriteConfig, workdir: Path, recorded: RecordedEpisodes, world: Any) -> np.ndarray | None:
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
    return recorded.returns(recorded.whole(np.asarray(source.rewards(rollout)) for rollout in recorded.rollouts))


def compare_with_learnt(
    returns: np.ndarray, learnt: np.ndarray, pairs: Pairs, agreement: float
) -> tuple[dict[str, Any], str]:
    """Figures of the comparison, and a finding if the two often disagree and the judge sides with the learnt reward.

    `returns`, `learnt`: of each episode, by the program and by the learnt reward. [E]; `agreement`: of the program.
    """
    (a, b), (c, d) = returns[pairs.episodes].T, learnt[pairs.episodes].T
    clear = (a != b) & (c != d)
    disagree = float(((b - a) * (d - c) < 0)[clear].mean()) if clear.any() else float("nan")
    varied = np.ptp(returns) > 0 and np.ptp(learnt) > 0
    figures = {
        "learnt_agreement": pairs.agreement(learnt), "learnt_disagrees": disagree,
        "learnt_correlation": float(np.corrcoef(returns, learnt)[0, 1]) if varied else float("nan"),
    }  # fmt: skip
    if disagree > 0.4 and figures["learnt_agreement"] > agreement:
        return figures, (
            f"unlike the learnt reward: it prefers the other episode in {disagree:.0%} of the pairs, and agrees with "
            f"the judge about {figures['learnt_agreement']:.0%} of them"
        )
    return figures, ""
