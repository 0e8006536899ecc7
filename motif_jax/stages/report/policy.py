"""The report's part on the training of the policy: curves of the episodes, speed, and use of time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.files import read_json, read_lines
from motif_jax.pages.blocks import folded, share_bar, table, tiles
from motif_jax.pages.charts import COLOURS, Level, Point, curves
from motif_jax.pages.formats import Interval, amount, esc, number
from motif_jax.rewards.choice import LEARNT, parse_sources, program_title
from motif_jax.rewards.options import MIXTURES
from motif_jax.stages.report.figures import curves_of
from motif_jax.stages.report.found import checked
from motif_jax.stages.report.head import duration, rewards_of, spell
from motif_jax.stages.report.options import of_options
from motif_jax.stages.report.parts import Found, Training
from motif_jax.system.metrics import PROBES, PROMPTS

THREADS = (  # activities of each thread, by metric time/NAME; shares of the whole time
    ("The thread that answers games", {
        "policy": "choosing actions", "wait_for_workers": "waiting for games",
        "gather": "gathering observations", "scatter": "distributing actions",
    }),
    ("The thread that hands rollouts over", {
        "place": "placing on the device", "stack": "stacking", "wait_for_rollouts": "waiting for rollouts",
        "wait_for_learner": "waiting for the learner",
    }),
    ("The learner", {"wait_for_batch": "waiting for a batch", "update": "waiting for the device"}),
    ("The workers", {"workers_wait": "waiting for actions"}),
)  # fmt: skip
LEARNT_RETURN = "episode/intrinsic_return"
PALETTE = ("first", "second", "good", "plum")


def of_policy(found: Found, training: Training) -> list[str]:
    """The part on training, as HTML: figures, curves, shares of time."""
    rows = training.rows
    figures = [
        (amount(training.steps), "steps"),
        (duration(training.seconds), "of training"),
        (f"{training.episodes:,}", "episodes"),
    ]
    if training.speed:
        figures.insert(2, (f"{training.speed:,.0f}", "steps/s, all in all"))
    share = mean_of(rows, "reward/learnt_share")
    if share:
        figures.append((f"{share:.1%}", "of the steps were rewarded by the learnt reward"))
    memory = max((row["memory_mib"] for row in rows if "memory_mib" in row), default=0.0)
    if memory:
        figures.append((f"{memory:,.0f} MiB", "of memory at most"))
    charts, sources = [], sources_of(training)
    own = {f"episode/{name}_return" for name in sources}  # drawn by `_return_curve`
    for name, title, note, figure in curves_of({metric for row in rows for metric in row} - own):
        points = curve(training, name)
        if not any(value for _, value in points):
            continue  # always zero, such as success in a task without a goal
        chance = found.chance.figures.get(figure) if figure and found.chance else None
        if figure == "intrinsic_return" and found.chance and found.own and found.chance.reward != found.own.reward:
            chance = None
        levels = [Level("random play", chance)] if chance else []
        charts.append(curves({title.lower(): points}, "steps", title=title, note=note, levels=levels))
    charts += [chart for name in sources if (chart := _return_curve(found, training, name))]
    body = [_rewards(training), *_programs(found), tiles(figures), f'<div class="charts">{"".join(charts)}</div>']
    return [*body, *of_options(training), *of_probes(find_probes(found.path)), "<h3>Where time goes</h3>", *_time(rows)]


def sources_of(training: Training) -> list[str]:
    """Names of the reward sources beside the learnt reward; [] if they are not known."""
    settings = training.settings
    if settings.get("options", "").strip():
        named = {name for row in training.rows for name in row if re.fullmatch(r"episode/.*_return", name)}
        return sorted(name.removeprefix("episode/").removesuffix("_return") for name in named - {LEARNT_RETURN})
    choices = parse_sources(settings.get("sources", ""), settings.get("intrinsic_coefficient", 0.0))
    return [choice.name for choice in choices if choice.name != LEARNT]


def _return_curve(found: Found, training: Training, source: str) -> str:
    """The curve of a source's return, as HTML, with that of random play if it is from an equal source."""
    points = curve(training, f"episode/{source}_return")
    if not points:
        return ""
    own, chance = found.own, found.chance
    alike = own and chance and own.sources.get(source) == chance.sources.get(source)
    levels = [Level("random play", chance.returns[source])] if alike and chance and source in chance.returns else []
    title = f"{source} return"
    return curves({title: points}, "steps", title=title, note="per episode", levels=levels)


def curve(training: Training, name: str) -> list[tuple[float, float]]:
    """The points (steps, value) of a metric, from the rows that have it."""
    return [(row["env_steps"], row[name]) for row in training.rows if name in row]


def mean_of(rows: list[dict[str, float]], name: str) -> float | None:
    """The mean of a metric over the rows that have it, without the first row, which includes compilation."""
    values = [row[name] for row in rows[1:] or rows if name in row]
    return sum(values) / len(values) if values else None


def _rewards(training: Training) -> str:
    """A line on algorithm, network and the coefficients of all rewards, as HTML."""
    section, rewards = training.settings, rewards_of(training.settings)
    if not rewards or not {"algorithm", "network"} <= section.keys():
        return ""
    words = [f"algorithm {section['algorithm']}", f"network {section['network']}"]
    if section.get("options", "").strip():
        words += [f"options {section['options']}", f"controller {section['controller']}"]
        words += ["the controller mixes the options"] if section.get("controller_chooses") == MIXTURES else []
    else:
        words.append(f"rewarded by {' + '.join(f'{coefficient:g} × {what}' for what, coefficient in rewards.items())}")
    return f'<p class="soft">{esc(" · ".join(words))}</p>'


def _programs(found: Found) -> list[str]:
    """The texts of reward programs and the returns of their terms, as HTML, from the evaluation of the policy."""
    body: list[str] = []
    if not found.own:
        return body
    for name, facts in found.own.sources.items():
        text = facts.get("program") if isinstance(facts, Mapping) else None
        if (title := program_title(name)) and isinstance(text, str):
            body += [folded(title, text), *_terms(title, found.own.terms.get(name, {}))]
    return body


def _terms(title: str, returns: Mapping[str, Interval]) -> list[str]:
    """The returns of a program's terms as HTML, largest first; empty if they are not known."""
    if not returns:
        return []
    total = sum(abs(one.mean) for one in returns.values())
    ordered = sorted(returns.items(), key=lambda one: -abs(one[1].mean))
    rows = [
        [f"<code>{esc(text)}</code>", spell(one), f"{abs(one.mean) / total:.1%}" if total else "–"]
        for text, one in ordered
    ]
    return [
        f'<p class="soft">Terms of {esc(title)}: mean returns per episode with 95 % bootstrap intervals, and shares of '
        "the sum of their absolute values.</p>",
        table(("term", "return", "share"), rows, numbers=(1, 2), kind="fits"),
    ]


def _time(rows: list[dict[str, float]]) -> list[str]:
    body = ['<p class="soft">Shares of the time after the start; the remainder is spent on other work.</p>']
    for thread, activities in THREADS:
        shares = []
        for (name, words), colour in zip(activities.items(), PALETTE, strict=False):
            waiting = words.startswith("waiting")
            share = mean_of(rows, f"time/{name}")
            if share is not None:
                shares.append((words, min(max(share, 0.0), 1.0), "tie" if waiting else colour))
        if shares:
            over = max(sum(share for _, share, _ in shares), 1.0)
            shares = [(words, share / over, colour) for words, share, colour in shares]
            body.append(f"<p>{thread}</p>{share_bar(shares, thin=True)}")
    return body


LEAST = 0.02  # actions with lower probabilities throughout are left out

Lines = dict[str, dict[str, list[Point]]]  # by prompt and action: (steps, probability of the action)


def find_probes(path: Path) -> Lines:
    """The probabilities of actions in fixed prompts during training; empty if they were not recorded."""
    file = path / "policy" / PROBES
    found: Lines = {}
    with checked(file):
        if not file.is_file() or not (path / "policy" / PROMPTS).is_file():
            return found
        names = [str(name) for name in read_json(path / "policy" / PROMPTS)["actions"]]
        for row in read_lines(file):
            for prompt, odds in _mapping(row["probabilities"]).items():
                lines = found.setdefault(str(prompt), {name: [] for name in names})
                for name, odd in zip(names, odds, strict=True):
                    lines[name].append((number(row["env_steps"]), number(odd)))
    return found


def of_probes(found: Lines) -> list[str]:
    """A chart for each prompt, with a line for each action, as HTML."""
    if not found:
        return []
    names = list(dict.fromkeys(name for lines in found.values() for name in lines))
    colours = dict(zip(names, COLOURS * len(names), strict=False))
    charts = []
    for prompt, lines in found.items():
        shown = {name: points for name, points in lines.items() if max(odd for _, odd in points) >= LEAST}
        charts.append(curves(shown, "steps", 0.0, 1.0, title=prompt, colours=colours))
    return [
        "<h3>Fixed prompts</h3>",
        '<p class="soft">Probabilities of the actions after each of these prompts.</p>',
        f'<div class="charts">{"".join(charts)}</div>',
    ]


def _mapping(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise ValueError("probabilities that are not a mapping")
    return value
