"""The player of replays on the report: assets/player.js unpacks and draws them in the browser."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from motif_jax.pages.blocks import data_script
from motif_jax.pages.formats import esc
from motif_jax.screens import PALETTE

WATCHED = "watched"  # of an evaluated player: a `Watched`
SPEEDS = (1, 2, 5, 10, 20, 50, 100)  # steps per second
USUAL = 10
FEW = 5  # steps; shorter episodes are not shown first
REACHED = 3  # the same for episodes that reached their goal


class PackedReplay(NamedTuple):
    """An episode, as a page holds it."""

    title: str
    steps: int
    reached: bool  # whether it reached its goal
    data: dict[str, Any]  # `stages.evaluate.page.pack`


class Watched(NamedTuple):
    """The replays of an evaluated player."""

    replays: tuple[PackedReplay, ...]


def choose(players: Sequence[tuple[bool, Watched]], most: int) -> list[tuple[Watched, PackedReplay]]:
    """At most `most` replays: those of the workdir's policy first (True), then those of the other players in turn."""
    own = [(player, replay) for is_own, player in players if is_own for replay in player.replays]
    others = [[(player, replay) for replay in player.replays] for is_own, player in players if not is_own]
    return [*own, *(one for turn in itertools.zip_longest(*others) for one in turn if one)][:most]


def replay_blocks(chosen: Sequence[tuple[Watched, PackedReplay]]) -> list[str]:
    """The replay player and its data, as HTML."""
    own = [number for number, (player, _) in enumerate(chosen) if player is chosen[0][0]]
    first = own[most_telling([chosen[number][1] for number in own])]
    options = [
        f'<option value="replay-{number}"{" selected" if number == first else ""}>{esc(replay.title)}</option>'
        for number, (_, replay) in enumerate(chosen)
    ]
    data = [data_script(f"replay-{number}", replay.data) for number, (_, replay) in enumerate(chosen)]
    colours = [f"rgb({red} {green} {blue})" for red, green, blue in PALETTE]
    return [_replay_player("".join(options)), data_script("colours", colours), *data]


def most_telling(replays: Sequence[PackedReplay]) -> int:
    """The index of the replay that is shown first.

    It is the longest that reached its goal, if that has REACHED steps; else the first with FEW steps; else the first.
    """
    reached = [replay.steps if replay.reached else 0 for replay in replays]
    if max(reached) >= REACHED:
        return reached.index(max(reached))
    return next((number for number, replay in enumerate(replays) if replay.steps >= FEW), 0)


def _replay_player(options: str) -> str:
    speeds = "".join(
        f'<option value="{speed}"{" selected" if speed == USUAL else ""}>{speed} steps/s</option>' for speed in SPEEDS
    )
    buttons = "".join(
        f'<button type="button" class="{name}" title="{esc(title)}" aria-label="{esc(title)}">{word}</button>'
        for name, title, word in (
            ("earlier", "the reward before", "« reward"), ("back", "one step back", "‹"),
            ("forward", "one step on", "›"), ("later", "the next reward", "reward »"),
        )
    )  # fmt: skip
    readings = "".join(
        f"<div><dt>{title}</dt><dd>{value}</dd></div>"
        for title, value in (
            ("the action that led here", '<span class="action">–</span><small class="chance"></small>'),
            ("learnt reward, or program's", '<span class="learnt">–</span> <small class="worth"></small>'),
            ("the same, so far", '<span class="learnt-sum of-learnt">0</span>'),
            ("the policy's value", '<span class="value">–</span>'),
            ("the game's reward", '<span class="game">–</span>'),
            ("the game's, so far", '<span class="game-sum of-game">0</span>'),
        )
    )  # fmt: skip
    return (
        '<div class="player" tabindex="0" role="group" aria-label="Replay player">'
        f'<select class="choice" aria-label="episode">{options}</select>'
        '<div class="stage"><canvas class="screen" role="img" aria-label="the game\'s screen"></canvas>'
        '<p class="message none">…</p>'
        '<canvas class="line" tabindex="0" role="slider" aria-label="step" aria-valuemin="0" aria-valuemax="0" '
        'aria-valuenow="0"></canvas>'
        f'<div class="keys"><button type="button" class="play">Play</button>{buttons}'
        f'<select class="speed" aria-label="speed">{speeds}</select>'
        '<button type="button" class="zoom" aria-pressed="false" title="follow the hero">Zoom</button>'
        '<span class="where">step <b class="step">0</b> of <span class="steps">0</span></span></div>'
        f'<dl>{readings}</dl><ol class="odds" aria-label="probabilities of the next action" hidden></ol></div>'
        '<div class="moments" hidden><p class="highest"></p><ol></ol></div>'
        '<p class="help">In the chart under the game, bars up are the learnt reward of each step, or a '
        "program's, bars down the "
        "game's reward, and negative rewards are red: click or drag. "
        "<kbd>space</kbd> plays, <kbd>←</kbd> <kbd>→</kbd> step, <kbd>↑</kbd> <kbd>↓</kbd> change the "
        "speed, <kbd>n</kbd> <kbd>p</kbd> go to rewards, <kbd>z</kbd> zooms.</p></div>"
    )
