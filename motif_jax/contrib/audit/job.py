"""Audits a workdir: gathers the evidence about its reward, asks the judges, examines the answers, and reports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.annotation.backends import Lexicon, OpenBackend, Oracle, find_backend, opened
from motif_jax.annotation.prompts import RATE
from motif_jax.annotation.verdicts import episode_text
from motif_jax.captions import decode
from motif_jax.console import print_line
from motif_jax.contrib.audit import findings
from motif_jax.contrib.audit.findings import SECOND, Captions, Figures, Steps, group_captions, mean_by
from motif_jax.contrib.audit.judge import EpisodePairs, Evidence, examine, make_plan
from motif_jax.contrib.audit.stage import (
    FILE,
    FOLDER,
    RANDOM,
    TITLE,
    AuditConfig,
    ask_second,
    find_players,
    stamp_of,
)
from motif_jax.contrib.audit.trajectories import audit_file
from motif_jax.envs.texts import texts_of
from motif_jax.envs.world import meanings_of
from motif_jax.envs.worlds import make_world
from motif_jax.episodes.playback import Track, messages_of, read_tracks
from motif_jax.pages.figures import Player, better
from motif_jax.pages.players import EPISODES, keys_of
from motif_jax.preferences.shards import mix, soft_target
from motif_jax.preferences.store import PairDataset
from motif_jax.rewards.learnt_source import Reward, load_reward, reward_checksum
from motif_jax.run import Run, StageRun
from motif_jax.stages.annotate import ask_pairs, label_name, make_backend
from motif_jax.stages.evaluate import read_json, read_rows
from motif_jax.structs import UserError, naming

UNEVALUATED = "random play was not evaluated (--config.evaluate.baselines=random)"
ONLY_RANDOM = "only random play was evaluated"


def run(config: AuditConfig, workdir: Path, open_backend: OpenBackend = opened) -> None:
    """Writes the findings to `workdir/audit`, and prints them. `open_backend` opens the judge, if there is one."""
    stage, stamp = Run(workdir).stage("audit", FOLDER), stamp_of(config, workdir)
    refused = 0
    if file := config.audit.trajectories:  # a user's, without a judge
        stage.bind(config)
        with naming("--config.audit.trajectories"):
            record = audit_file(Path(file))
        findings.write_page(stage.path, record)
    else:
        record, refused = audit_workdir(config, stage, open_backend)
    stage.section(TITLE, *findings.record_blocks(record), after="Training the agent")
    stage.report()
    stage.write(FILE, record | {"stamp": "" if refused else stamp})
    findings.print_record(record, stage.path / f"{FILE}.json")
    if refused:
        print_line(f"audit: the server refused {refused:,} questions; the same command asks them again")


def audit_workdir(config: AuditConfig, stage: StageRun, open_backend: OpenBackend) -> tuple[dict[str, Any], int]:
    """The record of the workdir's reward and agent, and how many questions the judge's server refused."""
    workdir, section = stage.workdir, config.audit
    players = find_players(workdir)
    if not players and not (workdir / "reward").is_dir():
        raise UserError(
            f"there is nothing in {str(workdir)!r} to audit yet: run --stage=train_reward or --stage=evaluate first "
            "(--workdir)"
        )
    stage.bind(config)
    evidence = gather(config, workdir, players, *load_rewards(config, workdir))
    plan = make_plan(evidence, section.flips, section.triples, section.repeats, config.seed)
    answers = ask_pairs(config, plan, stage.path / "answers.jsonl", open_backend, "audit")
    opinion = ask_second(config, plan, stage.path / "second.json")
    found, judge = examine(evidence, plan, answers, opinion), label_name(config.annotate)
    learnt_from = (read_json(workdir / "reward" / "statistics.json") or {}).get("annotators") or {judge: 1.0}
    if judge not in learnt_from:
        judge += f" (the reward was learnt from {', '.join(learnt_from)})"
    player = players["agent"].name if players else ""
    return findings.make_record(found, player, judge), answers.refused


# ---- evidence


def number_of(message: bytes, numbers: dict[str, int]) -> int:
    """The number of a message's caption: different ones in the order in which they are first seen."""
    return numbers.setdefault(decode(np.frombuffer(message, np.uint8)), len(numbers))


class PlayedEpisodes(NamedTuple):
    """Episodes of a player, by number."""

    captions: dict[int, np.ndarray]  # that each step is rewarded for. [T] int64
    still: np.ndarray  # whether nothing happens in the steps of all, see `playback.EpisodeMessages`. bool
    tracks: dict[int, Track]  # of the same numbers

    def pay(self) -> Steps:
        lengths = [len(shown) for shown in self.captions.values()]
        pay = [np.nan_to_num(track.intrinsic.astype(np.float64)) for track in self.tracks.values()]
        shown = np.concatenate([*self.captions.values()])
        return Steps(np.repeat(np.arange(len(lengths)), lengths), shown, np.concatenate(pay))


def gather(
    config: AuditConfig, workdir: Path, players: Mapping[str, Player], reward: Reward | None, second: Reward | None
) -> Evidence:
    """The evidence about the reward, and about a second one that was learnt with another seed."""
    numbers = dict[str, int]()
    agent = _play(config, workdir, players.get("agent"), numbers)
    chance: PlayedEpisodes | str = UNEVALUATED
    if RANDOM in players:
        is_agent = players[RANDOM].name == players["agent"].name
        chance = agent if is_agent else _play(config, workdir, players[RANDOM], numbers)
    labelled = _labels(config, workdir, numbers)
    texts = list(numbers)
    captions, judge = _captions(config, texts, reward, agent)
    if second is not None and texts:
        captions = captions._replace(second=second(texts).normalised.astype(np.float64))
    return Evidence(
        captions,
        rules=find_backend(config.annotate).by_rules,
        steps=agent if isinstance(agent, str) else agent.pay(),
        still=np.zeros(0, bool) if isinstance(agent, str) else agent.still,
        figures=_figures(config, workdir, players),
        labels=labelled,
        episodes=_pair_episodes(config, texts, agent, chance),
        judge=judge,
        soft=config.annotate.mode in ("score", RATE) or config.annotate.samples > 1,
        rates=make_backend(config).rates,
    )


def _play(config: AuditConfig, workdir: Path, player: Player | None, numbers: dict[str, int]) -> PlayedEpisodes | str:
    """Plays the episodes of a player back; returns the reason if that is not possible."""
    if player is None:
        return "no player was evaluated (--stage=evaluate)"
    if not player.repeatable:
        return "this game does not play the same twice, so its episodes cannot be played back"
    folder, env = workdir / "evaluate" / player.name, config.env
    tracks, rows, steps = read_tracks(folder / "tracks.npz"), [], 0
    for row in read_rows(folder / EPISODES):
        if steps + row["steps"] > config.audit.steps:
            break  # a later, shorter one would make the sample one of short games
        rows.append(row)
        steps += row["steps"]
    if not rows:
        return f"the first episode of {player.name} has more steps than may be played back (--config.audit.steps)"
    if not any(np.isfinite(tracks[row["episode"]].intrinsic).any() for row in rows):
        return f"the episodes of {player.name} have no learnt reward"
    print_line(f"audit: plays {len(rows):,} episodes of {player.name} back, {steps:,} steps")
    captions, still, late = {}, [], int(not config.policy.reference_alignment)
    for row, moments in zip(rows, messages_of(env, config.seed, rows, tracks), strict=True):
        if moments is None:
            return f"episodes of {player.name}, played back, are not the same (--config.env)"
        paid = slice(late, late + row["steps"])
        own = [number_of(message, numbers) for message in moments.messages[paid]]
        captions[row["episode"]] = np.array(own, np.int64)
        still += moments.still[paid]
    return PlayedEpisodes(captions, np.array(still, bool), {number: tracks[number] for number in captions})


def _figures(config: AuditConfig, workdir: Path, players: Mapping[str, Player]) -> Figures | str:
    """Figures of all episodes of the agent and of random play, where higher is better; or the reason for their lack."""
    if RANDOM not in players:
        return UNEVALUATED
    if players["agent"].name == RANDOM:
        return ONLY_RANDOM
    rows = [read_rows(workdir / "evaluate" / players[one].name / EPISODES) for one in ("agent", RANDOM)]
    world = make_world(config.env)
    keys, meanings, figures = keys_of(world.figures), meanings_of(world), {}
    for name, key in keys.items():
        ours, theirs = ([row.get(key) for row in each] for each in rows)
        if name != "intrinsic_return" and better(name, keys, meanings) == "higher" and None not in (*ours, *theirs):
            figures[name] = np.array(ours, float), np.array(theirs, float)
    return figures


def _labels(config: AuditConfig, workdir: Path, numbers: dict[str, int]) -> tuple[np.ndarray, np.ndarray] | str:
    """The labels that the reward was learnt from, or those of the judge for a reward from elsewhere."""
    summary = read_json(workdir / "reward" / "statistics.json") or {}
    weights: dict[str, float] = dict(summary.get("annotators") or {label_name(config.annotate): 1.0})
    if not (workdir / "dataset").is_dir():
        return "there is no dataset in this workdir"
    dataset = PairDataset(workdir / "dataset")
    gone = sorted(weights.keys() - set(dataset.preference_names()))
    if gone:
        return f"the annotation {', '.join(gone)} is gone from this workdir (--stage=annotate)"
    if dataset.length > 1:
        return "the moments of this dataset have several steps, so labels are not about single captions"
    target = mix({name: soft_target(dataset.preference(name), None) for name in weights}, weights)
    table, ids = dataset.captions()
    own = np.array([number_of(message.tobytes(), numbers) for message in table.messages], np.int64)
    return own[ids[:, :, 0]], target


def load_rewards(config: AuditConfig, workdir: Path) -> tuple[Reward | None, Reward | None]:
    """The reward to audit, and that of another seed; None for one that the workdir lacks and the config does not name.

    Raises UserError if the two cannot be compared.
    """
    folder, audited = config.policy.reward_dir, None
    if folder or (workdir / "reward" / "checkpoints").is_dir():
        audited = load_reward(folder or workdir, config.policy.reward_checkpoint)
    if not (named := config.audit.second_reward_dir):
        return audited, None
    with naming(SECOND):
        second = load_reward(named)
    if not second.reads_only_messages:
        raise UserError(f"the reward in {named!r} reads more than messages, so captions have no value ({SECOND})")
    if audited is None:
        return None, second
    facts = [one.facts.get("config", {}) for one in (audited, second)]
    seeds = [one.get("seed") for one in facts]
    goals = [one.get("annotate", {}).get("goal") for one in facts]
    reasons = {
        "is the audited one": reward_checksum(second) == reward_checksum(audited),
        f"has the seed of the audited one, {seeds[1]}": seeds[0] is not None and seeds[0] == seeds[1],
        f"was learnt for the goal {goals[1]!r}, the audited one for {goals[0]!r}": (
            None not in goals and goals[0] != goals[1]
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            raise UserError(f"the reward in {named!r} {reason}: name one that differs in the seed alone ({SECOND})")
    return audited, second


def _captions(
    config: AuditConfig, texts: list[str], reward: Reward | None, agent: PlayedEpisodes | str
) -> tuple[Captions, str]:
    """All captions with their rewards, groups and worth; and why no judge can be asked, or ""."""
    values = np.full(len(texts), np.nan)
    if texts and reward is not None and reward.reads_only_messages:
        values = reward(texts).normalised.astype(np.float64)
    if isinstance(agent, PlayedEpisodes):  # the rewards that the agent really had, also of rewards that read more
        z = np.concatenate([track.z for track in agent.tracks.values()]).astype(np.float64)
        z[~np.isfinite(z)] = np.nan
        own = mean_by(np.concatenate([*agent.captions.values()]), z, len(texts))
        values = np.where(np.isnan(own), values, own)
    if find_backend(config.annotate).by_rules:
        lexicon = Lexicon(texts_of(config.env, config.annotate.lexicon), config.annotate.goal)
        valued = [lexicon.worth(text) for text in texts]
        rules = [why.replace(", ", findings.SEVERAL) if worth else "" for worth, why in valued]
        group, names = group_captions(texts, rules)
        worth = np.zeros(len(names))
        worth[group] = [value for value, _ in valued]
        return Captions(texts, values, group, names, worth, ruled=True), ""
    group, names = group_captions(texts)
    captions = Captions(texts, values, group, names, np.full(len(names), np.nan))
    if not issubclass(find_backend(config.annotate), Oracle):
        return captions, ""
    name = config.annotate.backend
    return captions, f"the annotator {name!r} compares numbers of the game, so there is no judge of captions to ask"


def _pair_episodes(
    config: AuditConfig, texts: list[str], agent: PlayedEpisodes | str, chance: PlayedEpisodes | str
) -> EpisodePairs | str:
    """Pairs of the same games, played by random play and by the agent; or the reason for their lack."""
    if isinstance(agent, str) or isinstance(chance, str):
        return agent if isinstance(agent, str) else str(chance)
    by_rules = find_backend(config.annotate).by_rules
    if make_backend(config).rates:
        return "a judge that rates single messages is not asked about whole episodes (--config.annotate.mode)"
    if agent is chance:
        return ONLY_RANDOM
    both = sorted(agent.captions.keys() & chance.captions.keys())
    chosen = np.random.default_rng([config.seed, 26]).permutation(both)[: config.audit.wholes].tolist()
    every = np.concatenate([*agent.captions.values(), *chance.captions.values()])
    frequency = dict(zip(texts, np.bincount(every, minlength=len(texts)).tolist(), strict=True))

    def words(played: PlayedEpisodes) -> list[str]:
        return [episode_text([texts[at] for at in played.captions[number]], frequency, by_rules) for number in chosen]

    def returns(played: PlayedEpisodes) -> np.ndarray:
        return np.array([np.nansum(played.tracks[number].intrinsic, dtype=np.float64) for number in chosen])

    return EpisodePairs(words(chance), words(agent), returns(chance), returns(agent))
