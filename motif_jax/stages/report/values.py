"""The report's parts on offline learning: the transcripts, and the return against beta."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.pages.blocks import table, tiles
from motif_jax.pages.charts import COLOURS, Band, Level, columns, curves
from motif_jax.pages.formats import Interval, esc, exact
from motif_jax.stages.report.found import checked, read_object
from motif_jax.stages.report.parts import EvaluatedPlayer, Found
from motif_jax.transcripts.moments import game_returns
from motif_jax.transcripts.store import RECORD, Transcripts

BINS = 30
REFERENCES = ("candidate", "optimal", "asker", "checker", "kind", "rude", "random")  # scripted players, as lines
DASHES = ("2 3", "10 4 1.5 4", "14 4")  # of their lines; cloning has the colour of its decoding


class Recorded(NamedTuple):
    """The transcripts of a workdir."""

    counts: dict[str, int]
    by: str  # the players; "" for imported transcripts
    returns: np.ndarray  # [E]


def find_recorded(path: Path) -> Recorded | None:
    """The transcripts in a workdir; None if there are none."""
    file = path / "transcripts" / RECORD
    if (record := read_object(file)) is None:
        return None
    store = Transcripts(path / "transcripts", "--workdir")
    with checked(file):
        made = record["provenance"]
        returns = game_returns(store)
        counts = {name: int(record[name]) for name in ("actions", "texts")} | {"episodes": len(returns)}
        by = ", then ".join(str(made[name]) for name in ("collector", "policies", "branch_player") if made.get(name))
    return Recorded(counts, by, returns)


def decoded(found: Found) -> list[EvaluatedPlayer]:
    """The decodings of the workdir's policy that writes; the best return first."""
    return [player for player in found.players if player.decoding and player.path == "."]


def of_recorded(recorded: Recorded) -> list[str]:
    """The part on the transcripts, as HTML."""
    figures = [
        (f"{recorded.counts['episodes']:,}", "episodes"),
        (f"{recorded.counts['actions']:,}", "texts of the agent"),
        (f"{recorded.counts['texts']:,}", "different texts"),
    ]
    if recorded.returns.any():  # a manual is without rewards
        figures.append((exact(float(recorded.returns.mean())), "mean return"))
        figures.append((exact(float(recorded.returns.max())), "best return"))
    body = [f'<p class="soft">Played by {esc(recorded.by)}.</p>' if recorded.by else "", tiles(figures)]
    low, high = float(recorded.returns.min()), float(recorded.returns.max())
    if high > low:
        heights, edges = (array.tolist() for array in np.histogram(recorded.returns, bins=BINS))
        ends = (exact(low), exact((low + high) / 2), exact(high))
        body += ["<h3>Returns</h3>", columns(heights, ends, of=[f"{exact(edge)} and more" for edge in edges[:-1]])]
    return body


def of_sweep(found: Found) -> list[str]:
    """The part on decoding, as HTML: a chart of return against beta, scripted players as lines; and a table."""
    players = decoded(found)
    by_kind: dict[str, list[EvaluatedPlayer]] = {}
    for player in players:
        by_kind.setdefault(player.kind, []).append(player)
    lines: dict[str, list[tuple[float, float]]] = {}
    bands: dict[str, Band] = {}
    for kind, some in by_kind.items():
        some.sort(key=lambda player: player.beta)
        known = [(player.beta, interval) for player in some if (interval := player.figures.get("return"))]
        name = {"sample": "sampled"}.get(kind, kind)
        lines[name] = [(beta, interval.mean) for beta, interval in known]
        if len(known) > 1:
            ends = [interval.band for _, interval in known]
            bands[name] = Band([beta for beta, _ in known], [low for low, _ in ends], [high for _, high in ends])
    levels = _levels(found, players, list(by_kind))
    swept = any(len(points) > 1 for points in lines.values())
    recipe = next((player.recipe for player in players if player.recipe), "")
    words = (
        f'<p class="soft">{_decoding(players, esc(recipe))} All players play the same games; means with 95 % '
        "bootstrap intervals.</p>"
    )
    chart = curves(lines, "beta", title="Return against beta", levels=levels, bands=bands) if swept else ""
    return [words, chart, _table(players, [one for one in found.players if one not in players])]


def _decoding(players: Sequence[EvaluatedPlayer], recipe: str) -> str:
    """How these decodings use the values of a recipe, as HTML."""
    said, reranked = [], any(player.by_values and player.kind.startswith("rerank") for player in players)
    if any(player.beta and not player.kind.endswith("without logits") for player in players):
        said.append(f"Decoded by logits + beta (Q - V), with the values of {recipe}.")
    if any(player.kind.endswith("without logits") for player in players):
        said.append(f"Without logits, beta (Q - V) alone decides, by the values of {recipe}.")
    if reranked:
        said.append(f"The kind rerank draws several texts and writes the one that the values of {recipe} rank first.")
    if not said:
        return f"Written by the policy of {recipe}, without values."
    if any(not player.beta for player in players):
        said.append(f"Beta 0{' without rerank' if reranked else ''} is the policy by itself.")
    return " ".join(said)


def _levels(found: Found, players: Sequence[EvaluatedPlayer], kinds: Sequence[str]) -> list[Level]:
    """Horizontal lines: cloning by each kind of decoding, in its colour; then the scripted players."""
    levels = []
    for player in players:
        interval = player.figures.get("return")
        if interval and not player.by_values:
            name = f"cloned, {how(player).partition(', ')[2]}: {exact(interval.mean)}"
            levels.append(Level(name, interval, COLOURS[kinds.index(player.kind) % len(COLOURS)]))
    scripted = [player for player in found.players if player.name in REFERENCES and not player.path]
    for at, player in enumerate(scripted):
        if interval := player.figures.get("return"):
            colour = COLOURS[(len(kinds) + at) % len(COLOURS)]
            levels.append(Level(f"{player.name}: {exact(interval.mean)}", interval, colour, DASHES[at % len(DASHES)]))
    return levels


def _table(players: Sequence[EvaluatedPlayer], others: Sequence[EvaluatedPlayer]) -> str:
    """A row per decoding, the best return in bold, then one per other player."""
    best = max((mean_of(player) for player in players), default=0.0)
    rows = []
    for player in (*players, *others):
        name = how(player) if player in players else esc(player.name)
        cells = [_cell(player.figures.get(figure)) for figure in ("return", "success", "steps")]
        mark = "b" if player in players and mean_of(player) == best else "span"
        rows.append([f"<{mark}>{name}</{mark}>", f"{player.episodes:,}", *cells])
    return table(("", "games", "return", "success", "steps"), rows, numbers=(1,), kind="fits")


def mean_of(player: EvaluatedPlayer) -> float:
    """The mean return; minus infinity if it is not known."""
    interval = player.figures.get("return")
    return interval.mean if interval else float("-inf")


def _cell(interval: Interval | None) -> str:
    if interval is None:
        return '<span class="soft">–</span>'
    return f'<b>{exact(interval.mean)}</b> <span class="soft">{interval.words}</span>'


def sentence(found: Found, recorded: Recorded | None) -> list[str]:
    """Sentences for the first screen, as HTML: the transcripts, and the return compared with cloning."""
    players = decoded(found)
    if not players:
        return []
    best, cloned = players[0], [player for player in players if not player.by_values]
    words = []
    if recorded:
        by = f" played by <b>{esc(recorded.by)}</b>" if recorded.by else ""
        mean = exact(float(recorded.returns.mean()))
        words.append(f"From <b>{recorded.counts['episodes']:,}</b> episodes{by}, mean return {mean}.")
    said = f"Decoded with the values of <b>{esc(best.recipe)}</b> ({how(best)}), its return is {_value(best)}"
    if best in cloned:
        recipe = f"<b>{esc(best.recipe)}</b>"
        said = f"Learnt by {recipe} and decoded without values ({esc(best.kind)}), its return is {_value(best)}"
    elif cloned:
        said += f"; the same policy without them, at its best, gets {_value(max(cloned, key=mean_of))}"
    return [*words, f"{said}. These are means over {best.episodes:,} games."]


def how(player: EvaluatedPlayer) -> str:
    """How a policy that writes is decoded, in words."""
    return f"beta {player.beta:g}, {esc(re.sub('^sample', 'sampled', player.kind))}"


def _value(player: EvaluatedPlayer) -> str:
    interval = player.figures.get("return")
    return f"<b>{exact(interval.mean)}</b> {interval.words}" if interval else "–"
