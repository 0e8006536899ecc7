"""The report's part on the tokens that a policy wrote: their probabilities without and with the values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from motif_jax.pages.formats import esc, exact, number
from motif_jax.stages.report.found import checked, read_object
from motif_jax.stages.report.parts import EvaluatedPlayer, Facts
from motif_jax.stages.report.values import how, mean_of

GAMES = 2  # of each player
MARKS = {"<g>": "good", "<y>": "second", "<b>": "faint"}  # in an answer that colours letters, as in Wordle
SAID = re.compile("<[gyb]>")
COLUMNS = "repeat(auto-fit,minmax(min(100%,30rem),1fr))"  # five letters and the end mark side by side


def find_letters(path: Path, players: Sequence[EvaluatedPlayer]) -> list[tuple[EvaluatedPlayer, str, list[Facts]]]:
    """Games of the best decoding with values, then of the best without: player, episode, turns."""
    shown = [max(some, key=mean_of) for valued in (True, False)
             if (some := [player for player in players if player.by_values is valued])]  # fmt: skip
    found = []
    for one in shown:
        file = path / "evaluate" / one.name / "letters.json"
        record = read_object(file) or {"episodes": {}}
        with checked(file):
            for episode, turns in list(record["episodes"].items())[:GAMES]:
                found.append((one, str(episode), [_turn(turn) for turn in turns]))
    return found


def of_letters(games: Sequence[tuple[EvaluatedPlayer, str, list[Facts]]]) -> list[str]:
    """The part as HTML: a block per game, a table per text."""
    body = [
        '<p class="soft">Under each token that was written (of Wordle, a letter): the most probable ones by the policy '
        "alone, below them those with beta (Q - V), both at temperature 1; and Q - V of the one that was taken.</p>"
    ]
    for player, episode, turns in games:
        total = sum(turn["reward"] for turn in turns)
        body.append(
            f"<h3>{how(player)}: game {esc(episode)}, return {exact(total)}</h3>"
            f'<div class="pair" style="grid-template-columns:{COLUMNS}">{"".join(map(_written, turns))}</div>'
        )
    return body


def _turn(turn: Any) -> Facts:
    """A turn of letters.json, checked."""
    tokens = [
        {
            "token": str(one["token"]),
            "policy": [(str(name), number(odds)) for name, odds in one["policy"]],
            "shifted": [(str(name), number(odds)) for name, odds in one["shifted"]],
            "advantage": None if one["advantage"] is None else number(one["advantage"]),
        }
        for one in turn["tokens"]
    ]
    return {"said": str(turn["said"]), "heard": str(turn["heard"]), "reward": number(turn["reward"]), "tokens": tokens}


def _written(turn: Facts) -> str:
    """One text of the agent's: its tokens side by side, each over both distributions."""
    tokens, marks = turn["tokens"], SAID.findall(turn["heard"])
    coloured = len(marks) == len(turn["said"]) and "".join(marks) == turn["heard"]
    cells = []
    for place, one in enumerate(tokens):
        colour = MARKS[marks[place]] if coloured and place < len(marks) else ""
        style = f' style="color:var(--{colour})"' if colour else ""
        advantage = "" if one["advantage"] is None else f'<small class="soft">{one["advantage"]:+.2f}</small>'
        cells.append(
            '<td style="white-space:nowrap">'
            f"<b{style}>{esc(one['token'])}</b> {advantage}<br>{_odds(one['policy'], 'tie', one['token'])}"
            f"{_odds(one['shifted'], 'first', one['token'])}</td>"
        )
    heard = "" if coloured or not turn["heard"] else f'<p class="soft">{esc(turn["heard"])}</p>'
    return f'<div><div class="scroll"><table class="fits"><tr>{"".join(cells)}</tr></table></div>{heard}</div>'


def _odds(likely: Sequence[tuple[str, float]], colour: str, taken: str) -> str:
    """The most probable tokens as a column of bars; the one that was taken is in bold."""
    lines = []
    for name, odds in likely:
        mark = "b" if name == taken else "span"
        lines.append(
            f'<div style="background:linear-gradient(to right,color-mix(in srgb,var(--{colour}) 35%,transparent) '
            f'{odds:.0%},transparent {odds:.0%});white-space:nowrap;font-size:.78rem;min-width:3.4rem">'
            f"<{mark}>{esc(name)}</{mark}> {odds:.0%}</div>"
        )
    return f'<div style="margin:.25rem 0">{"".join(lines)}</div>'
