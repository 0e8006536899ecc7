"""The loop of proposals, trials on recorded episodes and revisions. All programs are kept, so a killed run resumes."""

from __future__ import annotations

import contextlib
import itertools
import math
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.actors.acting import answer, make_batch
from motif_jax.actors.pool import ActorPool
from motif_jax.annotation.backends import OpenBackend, find_backend, opened
from motif_jax.annotation.prompts import goal_text
from motif_jax.audit.judge import JudgePlan, episode_text
from motif_jax.captions import decode
from motif_jax.config.table import shown
from motif_jax.console import clean, print_line
from motif_jax.envs.texts import texts_of
from motif_jax.envs.world import SeedStream, waited
from motif_jax.envs.worlds import make_world
from motif_jax.files import read_json, write_whole
from motif_jax.pages.blocks import esc, table, tiles
from motif_jax.rewards.code.grammar import Program, ProgramError, check
from motif_jax.rewards.code.names import CAPTION, MOMENT, NUMBER, TEXTS, Readable, find_readable
from motif_jax.rewards.code.recogniser import is_plain, longest_phrase
from motif_jax.rewards.code.running import ALWAYS, Runner
from motif_jax.rewards.registry import BEST, WRITTEN
from motif_jax.rewards.source import Arrays, Setting
from motif_jax.run import Head, Run
from motif_jax.stages.audit import ask
from motif_jax.stages.evaluate import SUMMARY
from motif_jax.stages.write_reward import FLAG, MODEL, SCRIPTED, STAGE_NAME, WriteConfig, stages_of
from motif_jax.stages.write_reward.writers import Attempt, Brief, Writer, open_writer
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


# ---- recorded episodes on which programs are tried, and pairs of them for the judge


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
        from motif_jax.rewards.source import trusted_classes

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


class Evidence(NamedTuple):
    """What programs are tried on."""

    recorded: RecordedEpisodes
    texts: list[str]  # of the episodes, for the judge
    choosing: Pairs  # those that select programs
    telling: Pairs  # those that tell how good the best one is
    learnt: np.ndarray | None  # returns by the learnt reward. [num_episodes]
    brief: Brief


# ---- the loop


def write(config: WriteConfig, workdir: Path, open_backend: OpenBackend = opened) -> None:
    """Writes programs, tries them, and keeps the best as `best.reward`. `open_backend` opens the judge."""
    with Run(workdir).stage(STAGE_NAME, STAGE_NAME) as stage:
        stage.bind(config)
        section, readable = config.write_reward, find_readable(make_world(config.env))
        late = Deadline(section.minutes)
        evidence = gather(config, workdir, record_episodes(config, readable), open_backend, "answers.json")
        with contextlib.closing(open_writer(config, readable)) as writer:  # when the judge's model is gone from memory
            best, rounds, evidence = run_rounds(config, workdir, writer, evidence, open_backend, late)
        program, telling, goal = best.program.text, evidence.telling, evidence.brief.goal
        others = telling.agreement(evidence.recorded.returns(evidence.recorded.pay(best.program)))
        results = {
            "goal": goal, "writer": section.writer, "model": config.annotate.model, "world": config.env["world"],
            "judge": config.annotate.backend, "rounds": rounds, "found": best.is_reward,
            "best": {"program": program, "findings": best.findings, **best.figures},
            "agreement_on_others": others, "episodes": len(evidence.recorded.captions),
            "pairs": [len(evidence.choosing.judged), len(telling.judged)],
        }  # fmt: skip
        stage.write("record", results)
        stage.section("The written reward", *blocks_of(results))
        stage.report(Head(subject="A reward,", aim="written as a program"))
        if best.is_reward:  # last, as the stage is complete when the file exists
            by = f"written by {section.writer}; agrees with the judge about {others:.0%} of {len(telling.judged)} pairs"
            heading = f"# {' '.join(goal.split())}\n# {by}\n".encode("ascii", "replace")
            write_whole(stage.path / BEST, heading + f"{program}\n".encode())
    if not best.is_reward:
        print_line(
            f"{STAGE_NAME}: no reward was found: each program pays the same in every step, or agrees with the judge "
            f"about fewer than half of the pairs (--config.{STAGE_NAME}.proposals, .revisions, .writer)"
        )
        return
    print_line(f"{STAGE_NAME}: {shown(' '.join(program.split()))}")
    for finding in best.findings:
        print_line(f"{STAGE_NAME}: found: {finding}")
    print_line(
        f"{STAGE_NAME}: it agrees with the judge about {best.agreement:.0%} of the pairs that chose it and "
        f"{others:.0%} of {len(telling.judged)} others; --config.policy.sources=code:{STAGE_NAME}"
    )


def blocks_of(results: Mapping[str, Any]) -> list[str]:
    """The report's part, as HTML: the best program, and all that were tried."""
    best, (choosing, others) = results["best"], results["pairs"]
    by = "templates, which know nothing of games" if results["writer"] == SCRIPTED else results["model"]
    words = f"goal: {results['goal']} · written by {by} · judged by {results['judge']}"
    trials = [(number, row) for number, rows in enumerate(results["rounds"]) for row in rows]
    figures = [
        (_percent(best["agreement"]), f"of the {choosing:,} pairs of episodes that chose: agrees with the judge"),
        (_percent(results["agreement_on_others"]), f"of {others:,} others"),
    ]
    if "learnt_disagrees" in best:
        figures.append((_percent(best["learnt_disagrees"]), "of them: the learnt reward prefers otherwise"))
    figures += [(f"{len(trials):,}", "programs tried"), (f"{results['episodes']:,}", "recorded episodes")]
    found = "".join(f"<li>{esc(one)}</li>" for one in best["findings"])
    rows = []
    for number, row in trials:
        remarks = [*row.get("findings", ())]
        if trained := row.get("trained"):
            agent, random = trained["return"]
            remarks.append(f"an agent that was trained with it returns {agent:.3g} (random play: {random:.3g})")
        text = " ".join(row["program"].split())
        cut = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]} …"
        agreement = _percent(row.get("agreement"))
        rows.append([str(number), f"<code>{esc(cut)}</code>", agreement, esc("; ".join(remarks) or row["error"])])
    return [
        f'<p class="soft">{esc(words)}</p>',
        "" if results["found"] else "<p>No reward was found; this program came closest.</p>",
        tiles(figures),
        f"<pre>{esc(best['program'])}</pre>",
        f"<p>Found on recorded episodes:</p><ul>{found}</ul>" if found else '<p class="soft">Nothing found.</p>',
        "<h3>All programs</h3>",
        table(("round", "program", "agrees", "found, or why it cannot be read"), rows, numbers=(0, 2)),
    ]


def _percent(share: float | None) -> str:
    return "–" if share is None or np.isnan(share) else f"{share:.0%}"


def gather(
    config: WriteConfig, workdir: Path, recorded: RecordedEpisodes, open_backend: OpenBackend, file: str
) -> Evidence:
    """Asks the judge about pairs of the recorded episodes in both orders; `file` keeps its answers.

    The first half selects programs, the second evaluates the best.
    """
    section, world = config.write_reward, make_world(config.env)
    readable = find_readable(world)
    frequency = Counter(itertools.chain.from_iterable(recorded.captions))
    by_rules = find_backend(config.annotate).by_rules
    texts = [episode_text(captions, frequency, by_rules) for captions in recorded.captions]
    pairs, plan = recorded.choose_pairs(section.pairs, config.seed), JudgePlan()
    plan.episodes = plan.both((texts[first], texts[second]) for first, second in pairs.tolist())
    judged = ask(config, plan, workdir / STAGE_NAME / file, open_backend, STAGE_NAME).mean(plan.episodes)
    half = len(pairs) // 2
    choosing, telling = Pairs(pairs[:half], judged[:half]), Pairs(pairs[half:], judged[half:])
    print_line(
        f"{STAGE_NAME}: {len(recorded.captions):,} recorded episodes; the judge has verdicts about "
        f"{int((~np.isnan(choosing.judged)).sum())} of {half} pairs"
    )
    goal = section.goal or goal_text(texts_of(config.env, config.annotate.lexicon), config.annotate.goal).strip()
    del frequency[""]
    frequent = dict(frequency.most_common(40))
    brief = Brief(goal, world.about, readable, frequent, liked_captions(recorded, choosing))
    if section.writer == MODEL:
        quoted = recorded.texts(readable) if section.texts == "recorded" else ()
        ranges, moments = recorded.ranges(readable), recorded.moments(readable)
        brief = brief._replace(ranges=ranges, moments=moments, texts=quoted)
    return Evidence(recorded, texts, choosing, telling, learnt_returns(config, workdir, recorded, world), brief)


def liked_captions(recorded: RecordedEpisodes, pairs: Pairs) -> list[str]:
    """Captions that a program can look for, by how much more often preferred episodes show them."""
    surplus = Counter[str]()
    for better, worse in pairs.decided():
        surplus.update(dict.fromkeys(recorded.captions[better], 1))
        surplus.subtract(dict.fromkeys(recorded.captions[worse], 1))
    liked = [caption for caption in surplus if surplus[caption] > 0 and is_plain(caption) and 0 < len(caption) <= 80]
    return sorted(liked, key=lambda one: -surplus[one])[:8]


class Deadline:
    """Whether `write_reward.minutes` are over; says once that something is left out."""

    def __init__(self, minutes: float):
        self._minutes, self._end, self._passed = minutes, time.monotonic() + 60 * (minutes or math.inf), False

    def __call__(self) -> bool:
        if not self._passed and time.monotonic() >= self._end:
            self._passed = True
            print_line(f"{STAGE_NAME}: {self._minutes:g} minutes are over: the best so far counts ({FLAG}.minutes)")
        return self._passed


def run_rounds(
    config: WriteConfig, workdir: Path, writer: Writer, evidence: Evidence, open_backend: OpenBackend, late: Deadline
) -> tuple[Tried, list[list[dict[str, Any]]], Evidence]:
    """Runs all rounds; returns the best program, the programs of each round with their results, and the last evidence.

    Agents that have learnt from programs of a round play for the judge, and for the writer of the next one.
    """
    section, best = config.write_reward, None
    rounds: list[list[dict[str, Any]]] = []
    earlier: list[Attempt] = []
    trained: list[Tried] = []
    for number in range(1 + section.revisions):
        if rounds and late():
            break
        folder = workdir / STAGE_NAME / f"round-{number}"
        written = [row["program"] for earlier_rows in rounds for row in earlier_rows]
        evidence = evidence._replace(brief=evidence.brief._replace(tried=written))
        tried: list[Tried] = []  # of the round, as `rows`, but without those that cannot be read
        rows: list[dict[str, Any]] = []
        for proposal in range(section.proposals):
            if (tried or earlier) and late():  # without any program there is no best one
                break
            file = folder / f"program-{proposal}.reward"
            text, problem = propose(writer, evidence.brief, earlier, proposal, section.attempts, file)
            rows.append({"program": text, "error": problem})
            if not problem:
                tried.append(examine(check(text, evidence.brief.readable), evidence))
                rows[-1] |= {"findings": tried[-1].findings, **tried[-1].figures}
        rounds.append(rows)
        agents = train_best(config, tried, rows, trained, folder, late) if section.train_for_env_steps else []
        best = max([*([best] if best else []), *tried], key=lambda one: one.rank, default=None)
        if best is None:
            raise UserError(
                f"none of {section.proposals} programs could be read after {section.attempts} attempts each; the last "
                f"error: {rows[-1]['error']} (--config.write_reward.writer, .attempts)"
            )
        print_line(f"{STAGE_NAME}: round {number}: {len(tried)} of {len(rows)} programs can be read; the best "
                   f"agrees with the judge about {best.agreement:.0%} of the pairs")  # fmt: skip
        if agents and number < section.revisions and not late():
            evidence = see_agents(config, workdir, evidence, agents, open_backend, f"answers-{number + 1}.json")
            known = [examine(one.program, evidence)._replace(training=one.training) for one in (best, *trained)]
            best, trained = max(known, key=lambda one: one.rank), known[1:]
        agent = [describe_training(best.training.figures, section.train_for_env_steps)] if best.training else []
        figures = [f"{name.replace('_', ' ')}: {figure:.3g}" for name, figure in best.figures.items()]
        lines = describe(best, evidence, agent) if section.told == "diagnoses" else figures + agent
        earlier = [Attempt(best.program.text, "\n".join(f"- {line}" for line in lines))]
    assert best is not None
    return best, rounds, evidence


def train_best(
    config: WriteConfig, tried: list[Tried], rows: Sequence[dict[str, Any]], trained: list[Tried], folder: Path,
    late: Deadline,
) -> list[Path]:  # fmt: skip
    """Trains agents with the best programs of a round; adds their figures everywhere, and returns their workdirs."""
    agents = []
    for place, one in enumerate(to_train(tried, trained)[: config.write_reward.trainings]):
        if late():
            break
        agents.append(folder / f"training-{place}")
        trained.append(one._replace(training=train(config, one.program, agents[-1])))
    trainings = {one.key: one.training for one in trained}
    tried[:] = [one._replace(training=trainings.get(one.key)) for one in tried]
    for one, row in zip(tried, (row for row in rows if not row["error"]), strict=True):
        row |= {"trained": one.training.figures} if one.training else {}
    return agents


def see_agents(
    config: WriteConfig, workdir: Path, evidence: Evidence, agents: Sequence[Path], open_backend: OpenBackend, file: str
) -> Evidence:
    """The evidence with episodes of these agents."""
    recorded = evidence.recorded
    played = record_episodes(config, evidence.brief.readable, agents, len(recorded.captions))
    return gather(config, workdir, recorded.with_others(played), open_backend, file)


def to_train(tried: Sequence[Tried], trained: Sequence[Tried]) -> list[Tried]:
    """The rewards without a training, the best first, but those last that pay at the same steps as another one."""
    ranked = sorted((one for one in tried if one.is_reward), key=lambda one: one.rank, reverse=True)
    first, last = list[Tried](), list[Tried]()
    seen, keys = {one.paid for one in trained}, {one.key for one in trained}
    for one in ranked:
        if one.key not in keys:
            (last if one.paid in seen else first).append(one)
            seen.add(one.paid)
            keys.add(one.key)
    return first + last


def propose(
    writer: Writer, brief: Brief, earlier: Sequence[Attempt], number: int, attempts: int, file: Path
) -> tuple[str, str]:
    """A valid program and "", or the last text and its error. `file`: keeps the program, also of a killed run."""
    if file.exists():
        with contextlib.suppress(ProgramError):  # of a grammar that has become narrower
            check(text := file.read_text(), brief.readable)
            return text, ""
    tries, text, problem = list(earlier), "", ""
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


class Training(NamedTuple):
    """What a short training came to."""

    figures: dict[str, list[float]]  # means of the agent and of random play
    worth: tuple[float, ...]  # lower ends of the intervals of write_reward.chosen_by: luck in few games does not choose


def train(config: WriteConfig, program: Program, workdir: Path) -> Training:
    """Trains and evaluates an agent, or resumes a killed run."""
    best = workdir / WRITTEN / BEST
    if best.exists() and best.read_text() != program.text:  # this run ranks the programs otherwise
        shutil.rmtree(workdir)
    write_whole(best, program.text.encode())
    for stage, view in stages_of(config):
        if not stage.is_complete(view, workdir):
            stage.run(view, workdir)
    by_player: dict[str, dict[str, Any]] = {}
    for file in sorted((workdir / "evaluate").glob(f"*/{SUMMARY}")):
        summary: dict[str, Any] = read_json(file)
        figures = {name: figure for name, figure in summary["figures"].items() if figure}
        counts = {f"'{name}'": figure for name, figure in summary["did"].items()}
        by_player["random" if file.parent.name == "random" else "agent"] = figures | counts
    agent, random = by_player["agent"], by_player["random"]
    never = {"mean": 0.0}  # what never happened is not counted
    chosen = [agent.get(by) or agent.get(f"'{by}'") or never for by in config.write_reward.figures]
    names = [name for name in agent | random if name != "intrinsic_return"]
    means = {name: [agent.get(name, never)["mean"], random.get(name, never)["mean"]] for name in names}
    return Training(means, tuple(one["mean"] if (low := one.get("low")) is None else low for one in chosen))


def describe_training(figures: dict[str, list[float]], steps: int) -> str:
    """The results of a training, for the writer."""

    def change(name: str) -> float:
        agent, random = map(abs, figures[name])
        return (max(agent, random) + 1e-3) / (min(agent, random) + 1e-3)

    lines = [f"    {name}: {figures[name][0]:.3g} ({figures[name][1]:.3g})"
             for name in sorted(figures, key=change, reverse=True)[:12]]  # fmt: skip
    return "\n".join([f"an agent that learnt from it for {steps:,} steps, per episode (random play):", *lines])


# ---- results of a program on recorded episodes, in sentences for its writer and for people


class Tried(NamedTuple):
    """A program and its results."""

    program: Program
    agreement: float  # with the judge, on the pairs that choose
    findings: list[str]  # its defects
    figures: dict[str, Any]
    paid: bytes = b""  # the steps that are paid, as bits
    training: Training | None = None

    @property
    def is_reward(self) -> bool:
        """Whether it can be the best: it is not constant, and agrees with the judge at least as often as a coin."""
        return self.figures["spread"] > 0 and self.agreement >= 0.5

    @property
    def key(self) -> str:
        """Equal for programs that pay the same on the recorded episodes, so that one of them is trained."""
        return repr(self.figures)

    @property
    def rank(self) -> tuple[bool, bool, tuple[float, ...], float]:
        """The key of the ranking, higher is better: its training, then agreement minus WEIGHT for each finding."""
        agreement = 0.0 if np.isnan(self.agreement) else self.agreement
        worth = self.training.worth if self.training else ()
        return self.is_reward, self.figures["spread"] > 0, worth, agreement - WEIGHT * len(self.findings)


def examine(program: Program, evidence: Evidence) -> Tried:
    """Runs a program on all recorded episodes."""
    recorded, pairs, readable, learnt = evidence.recorded, evidence.choosing, evidence.brief.readable, evidence.learnt
    steps = recorded.pay(program)
    returns = recorded.returns(steps)
    agreement, spread = pairs.agreement(returns), float(np.ptp(steps))
    paid = np.packbits(steps != 0).tobytes()
    figures = {
        "agreement": agreement, "spread": spread, "mean_return": float(returns.mean()),
        "deviation_of_returns": float(returns.std()), "paid_steps": float((steps != 0).mean()),
        "equal_returns": float(np.mean(np.equal(*returns[pairs.episodes].T))),
    }  # fmt: skip
    if not spread:
        moments = "; ".join(recorded.moments(readable, MOMENTS))
        kind = "paid the same everywhere" if steps[0] else "never paid"
        finding = f"{kind}: it pays the same in every step ({steps[0]:.3g}), also at {moments}"
        return Tried(program, agreement, [finding], figures, paid)
    findings = [*_where_paid(recorded, steps, readable), *_before_the_goal(recorded, steps, returns)]
    if game := float(np.abs(recorded.column("reward")).sum()):
        figures["over_game"] = float(np.abs(steps).sum()) / game
    if (highest := float(np.abs(steps).max())) > 100:
        where = _moments(recorded, np.abs(steps))
        findings.append(
            f"out of scale: its largest reward is {highest:.3g}{where}: other rewards are about 1, so divide it"
        )
    if figures.get("over_game", 1.0) < 0.01:  # more is no defect where the game hardly pays
        less = f"{figures['over_game']:.3g} times as much as the game's own reward"
        findings.append(f"out of scale: it pays {less}: multiply it")
    if figures["equal_returns"] > MANY:
        findings.append(f"sparse: {figures['equal_returns']:.0%} of the pairs of episodes have equal returns by it")
    if learnt is not None:
        learnt_figures, finding = compare_with_learnt(returns, learnt, pairs, agreement)
        figures |= learnt_figures
        findings += [finding] if finding else []
    return Tried(program, agreement, findings, figures, paid)


def _where_paid(recorded: RecordedEpisodes, steps: np.ndarray, readable: Readable) -> Iterator[str]:
    """Findings about the steps that are paid. [N]"""
    positive = np.maximum(steps, 0.0)
    total = float(positive.sum()) or 1.0
    if (share := float((steps != 0).mean())) < 0.0001:
        where = _moments(recorded, np.abs(steps))
        yield f"sparse: it pays in {share:.3%} of the steps{where}: an agent will hardly ever meet it"
    if readable.still:
        idle = recorded.pay(check("still()", readable)) > 0
        if (standing := float(positive[idle].sum() / total)) > IDLE:
            where = _moments(recorded, positive * idle)
            yield (
                f"paid for standing still: {standing:.0%} of its pay is for steps that change nothing{where}: subtract "
                "still()"
            )
    repeated = recorded.repeated(OFTEN)
    if (again := float(positive[repeated].sum() / total)) > MANY:
        yield (
            f"paid again and again: {again:.0%} of its pay is for captions that the episode has shown more than "
            f"{OFTEN} times before{_moments(recorded, positive * repeated)}: pay for the first time alone, with "
            "once(...)"
        )
    if (every := float((steps > 0).mean())) > MANY:
        yield f"paid for length: it pays in {every:.0%} of the steps: longer episodes are paid more, whatever happens"


def _before_the_goal(recorded: RecordedEpisodes, steps: np.ndarray, returns: np.ndarray) -> Iterator[str]:
    """A finding if episodes that the game does not pay get as much as those that it pays. [N], [num_episodes]"""
    reached = recorded.returns(recorded.column("reward")) > 0
    if min(int(reached.sum()), int((~reached).sum())) < 2:
        return
    usual = float(np.median(returns[reached]))
    early = (returns >= usual) & (returns > 0) & ~reached
    if (share := float(early.sum() / (~reached).sum())) > IDLE:
        episode = recorded.whole(recorded.episodes)
        yield (
            f"paid before the goal: {share:.0%} of the episodes without the game's reward get as much as those with it "
            f"({usual:.3g}){_moments(recorded, np.where(early[episode], steps, 0))}: pay less there, or more for the "
            "goal"
        )


def _moments(recorded: RecordedEpisodes, weights: np.ndarray) -> str:
    """The captions of the steps with the largest weights, in words. [N]"""
    steps = np.argsort(-weights, kind="stable")[:500]
    distinct = recorded.distinct(steps[weights[steps] > 0])
    found = [caption for _, caption in itertools.islice(distinct, MOMENTS)]
    return f" (at {' and at '.join(map(repr, found))})" if found else ""


def describe(tried: Tried, evidence: Evidence, agent: Sequence[str] = ()) -> list[str]:
    """The results: how an agent played, then pairs of episodes about which program and judge disagree.

    Small models read only the beginning.
    """
    recorded, texts = evidence.recorded, evidence.texts
    lines = [f"agrees with the judge about {tried.agreement:.0%} of the pairs of episodes"]
    lines += [*_unpaid(tried.program, recorded, evidence.brief.liked), *tried.findings, *agent]
    returns = recorded.returns(recorded.pay(tried.program))
    wrong = [(better, worse) for better, worse in evidence.choosing.decided() if returns[better] <= returns[worse]]
    return lines + [
        f"the judge prefers this episode, which it pays {returns[better]:.3g}:\n{_first_lines(texts[better])}\n"
        f"to this one, which it pays {returns[worse]:.3g}:\n{_first_lines(texts[worse])}"
        for better, worse in wrong[:2]
    ]


def _unpaid(program: Program, recorded: RecordedEpisodes, liked: Sequence[str]) -> Iterator[str]:
    """Sentences about captions of preferred episodes at which the program pays nothing, or takes away."""
    steps = recorded.pay(program)
    captions = recorded.column(CAPTION)
    paid, charged = ({*map(decode, captions[sign * steps > 0])} for sign in (1, -1))
    terms = {caption: f'once(says("{longest_phrase(caption)}"))' for caption in liked if caption not in paid}
    for caption in [caption for caption in terms if caption in charged][:ADDED]:
        yield f"it takes away at a caption of better episodes: write + {terms.pop(caption)} in place of -"
    if added := [*terms.values()][:ADDED]:
        number = f"{len(added)} caption{'s' * (len(added) > 1)}"
        yield f"it pays nothing at {number} of better episodes: add + {' + '.join(added)}"


def _first_lines(text: str, lines: int = 12) -> str:
    shown = text.splitlines()
    left_out = [f"    ({len(shown) - lines} more lines)"] if len(shown) > lines else []
    return "\n".join([f"    {line}" for line in shown[:lines]] + left_out)


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
