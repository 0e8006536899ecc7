"""The policy's part of the report: curves of the episodes, use of time, and the judge that was asked."""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.annotation.annotator import too_few
from motif_jax.envs import worlds
from motif_jax.envs.world import meanings_of
from motif_jax.files import read_json
from motif_jax.names import BACKENDS, ONLINE_REWARDS, find
from motif_jax.pages.blocks import (
    Block,
    Box,
    Folded,
    Heading,
    Paragraph,
    ShareBar,
    Span,
    Table,
    Text,
    Tiles,
    amount,
    code,
    duration,
    in_words,
    machine_words,
    quoted,
)
from motif_jax.pages.charts import COLOURS, Curves, Level
from motif_jax.pages.figures import (
    Meanings,
    Player,
    all_metrics,
    arranged,
    chance_of,
    curve,
    curves_of,
    own_of,
)
from motif_jax.pages.players import read_players
from motif_jax.rewards.registry import LEARNT_KIND, ONLINE, ONLINE_KIND, SourceChoice, kind_of, parse_sources
from motif_jax.rewards.section import asks_pairs, is_anchored, parse_goals
from motif_jax.run import METRICS, Facts, Judge, Run, date_of
from motif_jax.stages.annotate.page import aim_of
from motif_jax.stages.train_policy.hooks import Words, blocks_of_hooks, words_of_hooks

TITLE, JUDGE = "Training the agent", "The judge"  # of the report's parts
GAME_REWARD = "the game"  # the title of the game's own reward, beside those of sources
THREADS = (  # activities of each thread, by metric time/NAME; shares of the whole time
    ("The thread that chooses actions", {
        "policy": "choosing actions", "wait_for_workers": "waiting for games",
        "gather": "gathering observations", "scatter": "distributing actions",
    }),
    ("The thread that passes rollouts to the learner", {
        "place": "placing on the device", "stack": "stacking", "wait_for_rollouts": "waiting for rollouts",
        "wait_for_learner": "waiting for the learner",
    }),
    ("The learner", {"wait_for_batch": "waiting for a batch", "update": "waiting for the device"}),
    ("The workers", {"workers_wait": "waiting for actions"}),
)  # fmt: skip
LEARNT_RETURN = "episode/intrinsic_return"
OPINIONS, ASKED = "opinions.jsonl", 20  # the answers of the judge, and how many are shown

Rows = Sequence[Mapping[str, Any]]
Record = Mapping[str, Any]


def report_training(workdir: Path, done: Record | None = None, players: Sequence[Player] | None = None) -> None:
    """Writes the part of the report, if training has begun.

    `done`: the training's summary; `players`: the evaluated ones; None: as they were written, if they were.
    """
    stage = Run(workdir).stage("train_policy", "policy")
    if not (rows := stage.rows()):
        return
    if done is None:
        done = stage.read("summary", dict) or {}
    if players is None:
        players = arranged(read_players(workdir))[""]
    config = read_json(stage.path / "config.json")
    meanings = meanings_of(worlds.make_world(config["env"]))
    is_over = done.get("env_steps", 0) >= rows[-1]["env_steps"]  # a stopped training, which has a summary, may go on
    last = done if is_over else rows[-1] | {"episodes": rows[-1].get("episode/all", 0)}
    words = words_of_hooks(stage.path, rows)
    stage.section(TITLE, *_training(rows, last, config["policy"], meanings, players, stage.path, words))
    online, judge, judged = config["policy"]["online"], None, list[Record]()
    if (stage.path / OPINIONS).exists():
        online = online | {"goals": online["goals"] or f"{config['annotate']['goal']}@0"}
        with (stage.path / OPINIONS).open("rb") as lines:
            newest = reversed(collections.deque(lines, ASKED + 1))  # only these are parsed, as there may be many
        judged = [json.loads(line) for line in newest if line.endswith(b"\n")][:ASKED]
        names = _judges(judged)
        plural = any(getattr(find(BACKENDS, name), "plural", False) for name in names)
        judge = Judge(tuple(map(_title_of_judge, names)), plural)
    stage.section(JUDGE, *(_judge(rows, last["env_steps"], online, judged) if judge else ()))
    own, machine = worlds.without_nethack(config, done.get("machine") or {})
    stage.report(Facts(
        title=words.title if words else _title(config["policy"], Run(workdir).facts(), judge, online["goals"]),
        lead=(*_warning(config, rows[-1]), *_trained(config["policy"], last, machine, is_over, judge, words)),
        task=worlds.title(config["env"]), goal=_schedule(online) if judge else None, judge=judge,
        steps=last["env_steps"], seconds=last["seconds"], made=date_of((stage.path / METRICS).stat().st_mtime),
        machine=machine or None, config=own, meanings=meanings,
    ))  # fmt: skip


def _speed(last: Record) -> float | None:
    """Steps per second; None for less than half a second, as the first update is not timed."""
    return last["env_steps"] / last["seconds"] if last["seconds"] >= 0.5 else None


# ---- the first screen


def _warning(config: Record, last: Record) -> Sequence[Text]:
    """That the answers of the judge that is asked during training can hardly be read; or nothing."""
    answers, read = (int(last.get(f"reward/{ONLINE}_{name}") or 0) for name in ("answers", "answers_read"))
    if not too_few(read, answers, ""):
        return ()
    annotate = config.get("annotate", {})
    judge = str(annotate.get("model") or _title_of_judge(str(annotate.get("backend") or "the judge")))
    few = f"Only {read:,}" if read else "None"
    said = Span(f"{few} of the {answers:,} answers of {judge} could be read")
    return said, ", so they contribute almost nothing to the reward. "


def _trained(
    settings: Record, last: Record, machine: Record, is_over: bool, judge: Judge | None, words: Words | None
) -> Sequence[Text]:
    """A sentence on the rewards and on the training. `judge`: that was asked during training, if one was."""
    where = machine_words(machine, short=True)
    return (
        f"The agent {words.rewarded if words else _rewarded(settings, judge)}trained for ",
        Span(in_words(last["env_steps"])), " steps in ", Span(duration(last["seconds"])),
        f"{f' on {where}' if where else ''}{'' if is_over else ' so far'}.",
    )  # fmt: skip


def _title(settings: Record, facts: Mapping[tuple[str, str], Facts], judge: Judge | None, goals: str) -> str:
    """What the agent was rewarded for, in a title. `facts`: of the stages; `judge`, `goals`: asked during training."""
    rewards = [words for words, coefficient in rewards_of(settings).items() if coefficient > 0]
    if rewards == [GAME_REWARD]:
        return "An agent that learnt by playing, from the game's own reward"
    of_stage = {
        name: [one for (stage, _), one in facts.items() if stage == name] for name in ("train_reward", "annotate")
    }
    learnt = of_stage["train_reward"] or of_stage["annotate"]
    aims_of = {LEARNT_KIND.title: [aim_of(one.goal or "") for one in learnt]}
    judges = {LEARNT_KIND.title: [one.judge for one in learnt if one.judge]}
    if judge:
        turns = [aim_of(turn.goal) for turn in parse_goals(goals)]
        aims_of[ONLINE_KIND.title], judges[ONLINE_KIND.title] = [", then ".join(filter(None, turns))], [judge]
    if aims := [aim for words in rewards for aim in aims_of.get(words, ()) if aim]:
        return f"An agent {' and '.join(dict.fromkeys(aims))}"
    likes = {GAME_REWARD: "the game's own reward"}
    likes |= {one.kind.title_of(one.name): one.kind.liked_of(one.name) for one in _sources(settings)}
    liked = [
        next((one.liked for one in judges.get(words, ()) if one.liked), likes.get(words) or words) for words in rewards
    ]
    return f"An agent that likes {listed(liked)}" if liked else "An agent that was trained without a reward"


def _rewarded(settings: Record, judge: Judge | None) -> str:
    """The first words about the agent's training, before "trained for"."""
    titles = {ONLINE_KIND.title: f"the answers of {' and '.join(judge.names)}"} if judge and judge.names else {}
    named = {titles.get(what) or what: coefficient for what, coefficient in rewards_of(settings).items()}
    words = [what if coefficient > 0 else f"{what} (a penalty)" for what, coefficient in named.items()]
    game = "" if GAME_REWARD in named else ", not by the game,"
    return f"was rewarded by {listed(words)}{' alone' * (len(words) == 1)}{game} and " if words else "was "


def rewards_of(settings: Record) -> dict[str, float]:
    """The coefficients of a policy's rewards, by their titles as plain text."""
    coefficients = {GAME_REWARD: settings["extrinsic_coefficient"]}
    judgeless = find(ONLINE_REWARDS, settings["online"]["kind"])
    titles = {ONLINE: judgeless.title} if judgeless else {}
    for choice in _sources(settings):
        coefficients[titles.get(choice.name) or choice.kind.title_of(choice.name)] = choice.coefficient
    return {words: coefficient for words, coefficient in coefficients.items() if coefficient}


def _sources(settings: Record) -> list[SourceChoice]:
    return parse_sources(settings["sources"], settings["intrinsic_coefficient"])


def listed(words: Sequence[str]) -> str:
    """Joins words as in a sentence: "a, b and c"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


# ---- training


def _training(
    rows: Rows,
    last: Record,
    settings: Record,
    meanings: Meanings,
    players: Sequence[Player],
    folder: Path,
    words: Words | None,
) -> list[Block]:
    speed, share = _speed(last), mean_of(rows, "reward/learnt_share")
    memory = max((row["memory_mib"] for row in rows if row.get("memory_mib")), default=0.0)
    figures = [
        (amount(last["env_steps"]), "steps"),
        (duration(last["seconds"]), "of training"),
        (speed and f"{speed:,.0f}", "steps/s overall"),
        (f"{last['episodes']:,}", "episodes"),
        (share and f"{share:.1%}", "of the steps were rewarded by the learnt reward"),
        (memory and f"{memory:,.0f} MiB", "of memory at most"),
    ]
    returns = (re.fullmatch(r"episode/(.*)_return", name) for row in rows for name in row if name != LEARNT_RETURN)
    sources = list(dict.fromkeys(match[1] for match in returns if match))  # beside the learnt reward
    charts, own, chance = [], own_of(players), chance_of(players)
    metrics = {metric for row in rows for metric in row} - {f"episode/{source}_return" for source in sources}
    for name, title, note in curves_of(metrics, meanings):
        points = curve(rows, name)
        if not any(value for _, value in points):
            continue  # always zero, such as success in a task without a goal
        level = chance.figures.get(name.removeprefix("episode/")) if chance else None
        is_other = name == LEARNT_RETURN and chance and own and chance.reward != own.reward
        levels = [Level("random play", level)] if level and not is_other else []
        charts.append(Curves({title.lower(): points}, "steps", title=title, note=note, levels=levels))
    for source in sources:
        title, levels = f"{source} return", []
        if own and chance and source in chance.returns and own.sources.get(source) == chance.sources.get(source):
            levels = [Level("random play", chance.returns[source])]
        if points := curve(rows, f"episode/{source}_return"):
            charts.append(Curves({title: points}, "steps", title=title, note="per episode", levels=levels))
    return [
        _rewards(settings, words), *_sources_of(own), Tiles(figures), Box(charts, "charts"),
        *blocks_of_hooks(folder, rows), *_time(rows), all_metrics(rows),
    ]  # fmt: skip


def mean_of(rows: Rows, name: str) -> float | None:
    """The mean of a metric over the rows that have it, without the first row, which includes compilation."""
    values = [row[name] for row in rows[1:] or rows if row.get(name) is not None]
    return sum(values) / len(values) if values else None


def _rewards(settings: Record, words: Words | None) -> Paragraph:
    rewards, level = rewards_of(settings), settings["threshold_quantile"]
    said = [f"algorithm {settings['algorithm']}", f"network {settings['network']}"]
    if words:
        return Paragraph(" · ".join([*said, *words.settings]), "soft")
    said.append(f"rewarded by {' + '.join(f'{coefficient:g} × {what}' for what, coefficient in rewards.items())}")
    if level != 0.5 and LEARNT_KIND.title in rewards:
        said.append(f"learnt rewards below their {level:.0%} quantile count as 0" if level >= 0 else "no threshold")
    return Paragraph(" · ".join(said), "soft")


def _sources_of(own: Player | None) -> list[Block]:
    """The texts of the agent's reward sources, and the terms of those that are sums."""
    body: list[Block] = []
    for name, facts in own.sources.items() if own else ():
        kind = kind_of(name)
        title = kind.title_of(name)
        if text := kind.text(facts):
            body.append(Folded(title, text))
        if own and (returns := own.terms.get(name)):
            total = sum(abs(one.mean) for one in returns.values())
            rows: list[list[Text]] = [
                [code(term), one.spelt, f"{abs(one.mean) / total:.1%}" if total else "–"]
                for term, one in sorted(returns.items(), key=lambda item: -abs(item[1].mean))  # largest first
            ]
            words = (
                f"Terms of {title}: mean returns per episode with 95 % bootstrap intervals, and shares of the sum of "
                "their absolute values."
            )
            body += [
                Paragraph(words, "soft"),
                Table(("term", "return", "share"), rows, numbers=(1, 2), kind="fits"),
            ]
    return body


def _time(rows: Rows) -> list[Block]:
    words = "Shares of the time after the start; the remainder is spent on other work."
    body: list[Block] = [Heading("Where time goes"), Paragraph(words, "soft")]
    for thread, activities in THREADS:
        means = zip(activities.values(), COLOURS, (mean_of(rows, f"time/{name}") for name in activities), strict=False)
        spent = [(words, colour, min(max(share, 0.0), 1.0)) for words, colour, share in means if share is not None]
        over = max(sum(share for *_, share in spent), 1.0)
        shares = [
            (words, share / over, "tie" if words.startswith("waiting") else colour) for words, colour, share in spent
        ]
        if shares:
            body += [Paragraph(thread), ShareBar(shares, thin=True)]
    return body


# ---- the judge


def _judge(rows: Rows, steps: int, online: Record, judged: Sequence[Record]) -> list[Block]:
    """The part on the judge. `judged`: the last answers, the newest first."""
    last, steps = rows[-1], max(steps, 1)

    def figure(name: str) -> float:
        return last.get(f"reward/{ONLINE}_{name}") or 0.0

    means = (mean_of(rows, f"reward/{ONLINE}_{name}") for name in ("labelled_share", "latency_s_p50", "age_s_p95"))
    (share, wait, age), came = means, figure("answers")
    figures = [
        (f"{figure('labels'):,.0f}", f"labels, for {figure('captions'):,.0f} different captions"),
        (f"{1e6 * figure('labels') / steps:,.0f}", "labels per million steps"),
        (share and f"{share:.1%}", "of the steps showed a caption with a label"),
        (wait and f"{1000 * wait:,.0f} ms", "from question to answer, median"),
        (age and f"{age:,.1f} s", "from first sight to a label, 95th percentile"),
        (came and f"{figure('answers_read') / came:.1%}", f"of {came:,.0f} answers could be read"),
        (f"{figure('refused'):,.0f}", "questions given up, as no answer could be read"),
    ]

    def line(name: str, scale: float = 1.0) -> list[tuple[float, float]]:
        return [(x, scale * y) for x, y in curve(rows, f"reward/{ONLINE}_{name}")]

    charts = [
        ({"captions": line("captions"), "labels": line("labels")}, "Captions and labels", "different captions"),
        ({"labelled": line("labelled_share", 100)}, "Steps with a label", "% of steps"),
        ({"median": line("latency_s_p50", 1000), "95 %": line("latency_s_p95", 1000)}, "Time to answer", "ms"),
        ({"median": line("age_s_p50"), "95 %": line("age_s_p95")}, "Age of labels", "s since first seen"),
        ({"waiting": line("waiting")}, "Questions that wait", ""),
        ({"helpful": line("yes_share", 100)}, "Answers that are yes", "%"),
        ({"down": line("down_s")}, "The judge is down", "s"),
        ({"accuracy": line("accuracy", 100)}, "Accuracy of the network", "% of lessons' labels"),
    ]
    drawn = [
        Curves({name: points for name, points in lines.items() if points}, "steps", title=title, note=note)
        for lines, title, note in charts
        if any(value for points in lines.values() for _, value in points)
    ]
    kind, against = online["kind"], "a moment without a message" if is_anchored(online) else "each other"
    kind += f": captions against {against}" if asks_pairs(kind) else ""
    asked = " · ".join([kind, *(f"asked: {name}" for name in _judges(judged)), f"goal: {_schedule(online)}"])
    body: list[Block] = [Paragraph(asked, "soft"), Tiles(figures), Box(drawn, "charts")]
    return [*body, Heading("Asked last"), answers(judged)] if judged else body


def _schedule(online: Record) -> str:
    return ", ".join(
        turn.goal if not turn.step else f"{turn.goal} from step {amount(turn.step)} on"
        for turn in parse_goals(online["goals"])
    )


def _title_of_judge(name: str) -> str:
    """The title of a judge of ours; the name of another one, or of a model."""
    return getattr(find(BACKENDS, name), "title", "") or name


def _judges(judged: Sequence[Record]) -> list[str]:
    return sorted({row["by"] for row in judged if row.get("by")})


def answers(rows: Sequence[Record]) -> Table:
    """A table of questions with their answers."""
    pairs = any(row.get("other") is not None for row in rows)
    cells = list[list[Text]]()
    for row in rows:
        yes = row.get("yes")
        verdict = "unreadable" if yes is None else f"{yes:.2f}".rstrip("0").rstrip(".")
        other = (" or ", quoted(row["other"])) if row.get("other") is not None else ()
        cells.append([(quoted(row["caption"]), *other), verdict, row.get("said") or "", f"{row['env_steps']:,}"])
    head = ("captions" if pairs else "caption", "P(second is better)" if pairs else "P(helpful)", "said", "step")
    return Table(head, cells, numbers=(1, 3))
