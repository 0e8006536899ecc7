"""The report's part on evaluation: figures of all players, ends of episodes, behaviours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from motif_jax.envs.protocols import TITLES, is_variation
from motif_jax.pages.blocks import share_bar, table
from motif_jax.pages.charts import COLOURS, bars, reach, track
from motif_jax.pages.formats import Interval, esc, exact
from motif_jax.pages.spreadsheet import of_intervals
from motif_jax.stages.report.figures import in_order, words
from motif_jax.stages.report.head import label
from motif_jax.stages.report.parts import EvaluatedPlayer, Found

CAUSES_SHOWN = 6  # causes with a name; the others are added up
SELDOM = 0.05  # times per episode; rarer behaviours are left out
NOTHING = Interval(0.0, 0.0, 0.0)


def of_evaluation(found: Found) -> list[str]:
    """The part on evaluation: by the workdir's own rules, then by those of other protocols."""
    body = of_players(_few(found.players)) if found.players else []
    varied = {name: players for name, players in found.by_protocol.items() if is_variation(name)}
    if varied:
        body += _of_variations(found.players, varied)
    for protocol, players in found.by_protocol.items():
        if protocol in varied:
            continue
        body += [f"<h3>By the rules of {esc(TITLES.get(protocol, protocol))}</h3>"]
        body += [figures_table([(label(player), player) for player in players])]
    return body


def _of_variations(players: Sequence[EvaluatedPlayer], varied: Mapping[str, Sequence[EvaluatedPlayer]]) -> list[str]:
    """Success rates: a row for each variation of the games, a column for each player."""
    games = {"as in training": players, **varied}
    names = {label(player): None for others in varied.values() for player in others}
    figures = []
    for game, others in games.items():
        by_name = {label(player): player.figures.get("success") for player in others}
        figures.append((game, [by_name.get(name) for name in names]))
    rows = [_figure_row(game, "", intervals, alike=True) for game, intervals in figures]
    return [
        "<h3>Variations of the games</h3>",
        '<p class="soft">Success rate in games that were not used in training, in the same episodes '
        "for each player, with 95 % bootstrap intervals.</p>",
        table(("", *names), rows, kind="figures", sheet=of_intervals(figures, list(names))),
    ]


def _few(players: Sequence[EvaluatedPlayer]) -> list[EvaluatedPlayer]:
    """All players; of a policy that is decoded in several ways, only the best decoding with and without values."""
    decoded = [player for player in players if player.decoding]
    kept = decoded[:1] + [player for player in decoded[1:] if not player.by_values][:1]
    return [player for player in players if player in kept or not player.decoding]


def of_players(players: Sequence[EvaluatedPlayer]) -> list[str]:
    """The part on evaluation, as HTML: figures, ends of episodes, behaviours."""
    body = [
        '<p class="soft">All players play the same games, whose seeds are not used in training; means with 95 % '
        "bootstrap intervals.</p>",
        figures_table([(label(player), player) for player in players]),
    ]
    if not all(player.repeatable for player in players):
        body.append(
            '<p class="soft">This game cannot be repeated exactly: it can only be recorded while it is played, and '
            "the players' games differ.</p>"
        )
    ended = [player for player in players if player.ends]
    if ended:
        body += ["<h3>How the episodes ended</h3>", *(_ends(player, ended) for player in ended)]
    body += behaviours([(label(player), player) for player in players])
    return body


def figures_table(named: Sequence[tuple[str, EvaluatedPlayer]]) -> str:
    """A row per figure, a column per player."""
    rows = [["episodes", *(f"{player.episodes:,}" for _, player in named)]]
    sheet: list[tuple[str, Sequence[Interval | None]]] = [
        ("episodes", [Interval(player.episodes) for _, player in named])
    ]

    def row(figure: str, intervals: Sequence[Interval | None]) -> tuple[str, Sequence[Interval | None]]:
        counts = [player.episodes for _, player in named]
        return figure, [one and one._replace(n=one.n or count) for one, count in zip(intervals, counts, strict=True)]

    rewards = {player.reward for _, player in named}
    for figure in in_order(figure for _, player in named for figure in player.figures):
        name, note = words(figure)
        intervals = [player.figures.get(figure) for _, player in named]
        if not any(interval and interval.mean for interval in intervals):
            continue
        alike = figure != "intrinsic_return" or len(rewards) == 1
        rows.append(_figure_row(name, note, intervals, alike))
        sheet.append(row(name, intervals))
    for source in {source: None for _, player in named for source in player.returns}:
        intervals = [player.returns.get(source) for _, player in named]
        alike = all(player.sources.get(source) == named[0][1].sources.get(source) for _, player in named)
        rows.append(_figure_row(f"{source} return", "from this reward source", intervals, alike))
        sheet.append(row(f"{source} return", intervals))
    names = [name for name, _ in named]
    return table(("", *names), rows, kind="figures", sheet=of_intervals(sheet, names))


def _figure_row(words: str, note: str, intervals: Sequence[Interval | None], alike: bool) -> list[str]:
    """A figure of several players as cells; with a scale if the values are comparable (`alike`)."""
    low, high = reach(intervals)
    cells = []
    for number, interval in enumerate(intervals):
        if interval is None:
            cells.append('<span class="soft">–</span>')
            continue
        colour = COLOURS[number % len(COLOURS)]
        median = "" if interval.median is None else f" median {exact(interval.median)}"
        cells.append(
            f'<b>{exact(interval.mean)}</b> <span class="soft">{interval.words}{median}</span>'
            f"{track(interval, low, high, colour) if alike else ''}"
        )
    what = esc(words) if alike else f"{esc(words)} <small class=soft>of different rewards</small>"
    return [f"{what}<br><small class=soft>{esc(note)}</small>" if note and alike else what, *cells]


def _ends(player: EvaluatedPlayer, others: Sequence[EvaluatedPlayer]) -> str:
    """The shares of the ends of one player's episodes, as a bar; an end has the same colour for all players."""
    colours = dict(zip(_often(others)[:CAUSES_SHOWN], COLOURS, strict=False))
    total = max(sum(player.ends.values()), 1)
    shares = [(end, times / total, colours[end]) for end, times in player.ends.items() if end in colours]
    shares.sort(key=lambda part: -part[1])
    rest = sum(times for end, times in player.ends.items() if end not in colours) / total
    if rest:
        kinds = len(player.ends.keys() - colours.keys())
        shares.append((f"{kinds} other ends", rest, "tie"))
    return f"<p>{esc(label(player))}</p>{share_bar(shares, thin=True)}"


def _often(players: Iterable[EvaluatedPlayer]) -> list[str]:
    """All ends of episodes, the most frequent first."""
    times: dict[str, float] = {}
    for player in players:
        for end, count in player.ends.items():
            times[end] = times.get(end, 0.0) + count / max(player.episodes, 1)
    return sorted(times, key=lambda end: (-times[end], end))


def behaviours(named: Sequence[tuple[str, EvaluatedPlayer]]) -> list[str]:
    """Behaviours per episode: those that goals ask for first, then those that differ most between players."""
    named = [(name, player) for name, player in named if player.did]
    if not named:
        return []
    trained = [at for at, (_, player) in enumerate(named) if player.path]
    # Several agents are compared with each other, a single one with the players beside it.
    told_apart = trained if len(trained) > 1 else range(len(named))
    names = {behaviour for _, player in named for behaviour in player.did}

    aims = {behaviour for _, player in named for behaviour in player.aims}
    done = {behaviour: [player.did.get(behaviour, NOTHING) for _, player in named] for behaviour in names}

    def apart(behaviour: str) -> float:
        lows, highs = zip(*(done[behaviour][at].band for at in told_apart), strict=True)
        return (max(lows) - min(highs)) / max(*highs, 1e-9)

    often = [behaviour for behaviour in names if max(interval.mean for interval in done[behaviour]) >= SELDOM]
    if len(named) > 1:
        often.sort(key=lambda behaviour: (behaviour not in aims, -apart(behaviour), behaviour))
    else:
        often.sort(key=lambda behaviour: (behaviour not in aims, -done[behaviour][0].mean, behaviour))
    first = "; first those that goals ask for" + (", then those that differ most" if len(named) > 1 else "")
    return [
        "<h3>What they did</h3>",
        f'<p class="soft">Behaviours per episode, counted from messages{first}. Each row has its own scale.</p>',
        bars([(behaviour, "", done[behaviour]) for behaviour in often], [name for name, _ in named]),
    ]
