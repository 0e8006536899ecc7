"""What an evaluation makes of the played episodes: their summary, tables on the console, its parts of the report."""

from __future__ import annotations

import base64
import collections
import io
import itertools
import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax import files
from motif_jax.captions import decode
from motif_jax.console import print_line
from motif_jax.envs.protocols import TASK, find_protocol, is_variation
from motif_jax.pages import figures
from motif_jax.pages.blocks import (
    Block,
    Box,
    Heading,
    Interval,
    Paragraph,
    ShareBar,
    Span,
    Table,
    Text,
    cell,
    exact,
    soft,
)
from motif_jax.pages.charts import COLOURS, Band, Bars, Curves, Letters, Level
from motif_jax.pages.figures import PackedReplay, Player, Players, label
from motif_jax.pages.players import END_NAMES, keys_of
from motif_jax.replays.replay import COLUMNS, Replay, load_replay, open_picture
from motif_jax.run import Facts, Run
from motif_jax.screens import REVERSED, SHOWN
from motif_jax.stages.train_policy.page import report_training
from motif_jax.structs import EndStatus

BESIDE = 4  # other players in the table
HAPPENINGS = 8  # in the table
OTHER_REWARD, NEVER = "another reward", Interval(0.0, 0.0, 0.0)
ON_FIRST = 5  # figures on the first screen
CAUSES_SHOWN = 6  # causes with a name; the others are added up
DASHES = ("2 3", "10 4 1.5 4", "14 4")  # of scripted players' lines; cloning has the colour of its decoding
GAMES = 2  # of each player
MARKS = {"<g>": "good", "<y>": "second", "<b>": "faint"}  # in an answer that colours letters, as in Wordle
SAID = re.compile("<[gyb]>")
PICTURES = 300  # of a replay in a page
PICTURE_SIDE, PICTURE_QUALITY = 240, 70  # pixels, and of WebP's 100: about 5 kB for a picture

# ---- tables on the console


def print_table(workdir: Path, every: Mapping[str, Player], name: str, own: Iterable[str]) -> None:
    """Prints a row per figure, the world's `own` too, with columns for the player `name` and up to BESIDE others."""
    mine = every[name]
    others = {one: player for one, player in sorted(every.items()) if player.protocol == mine.protocol and one != name}
    shown = {name: mine} | dict(itertools.islice(others.items(), BESIDE))
    players = shown.values()
    rows = [["", *shown], ["", *(f"{player.episodes:,} episodes" for player in players)]]

    def add(what: str, values: Sequence[Interval | None], alike: Sequence[bool], median: bool = False) -> None:
        cells = zip(values, alike, strict=True)
        rows.append([what, *(show(value, median) if same else OTHER_REWARD for value, same in cells)])

    for figure in dict.fromkeys([*keys_of(own), *sorted(mine.figures)]):  # also the success in families of missions
        if any(values := [player.figures.get(figure) for player in players]):
            alike = [figure != "intrinsic_return" or player.reward == mine.reward for player in players]
            add(figure, values, alike, median=True)
    for source in sorted(mine.returns):  # the sources beside the learnt reward
        alike = [player.sources.get(source) == mine.sources.get(source) for player in players]
        add(f"{source} return", [player.returns.get(source) for player in players], alike)
    for event in sorted(mine.did, key=lambda event: -mine.did[event].mean)[:HAPPENINGS]:
        rows.append([event, *(show(player.did.get(event, NEVER if player.did else None)) for player in players)])
    _print_rows(rows)
    if len(others) > BESIDE:
        print_line(f"and {len(others) - BESIDE} more in {workdir / 'evaluate'}")


def print_controls(
    every: Mapping[str, Player], played: Mapping[str, Sequence[str]], controls: Mapping[str, str]
) -> None:
    """Prints success, return and steps of the players by protocol, and by the names of `controls`."""
    names = {TASK: "true missions"} | {protocol: name for name, protocol in controls.items()}
    rows = [["games", "protocol", "player", "episodes", "success", "return", "steps"]]
    for protocol, players in played.items():
        games = names.get(protocol, protocol)
        for name in reversed(players):  # the policy itself comes first
            own, who = every[name].figures, [protocol, name.removesuffix(find_protocol(protocol).suffix)]
            rows.append([games, *who, str(every[name].episodes), *(show(own.get(figure)) for figure in rows[0][4:])])
            families = {figure.removeprefix("success_"): own[figure] for figure in own if figure.startswith("success_")}
            rows += [[f"{games}, {family}", *who, "", show(success), "-", "-"] for family, success in families.items()]
    _print_rows(rows)


def print_sweep(every: Mapping[str, Player], names: Sequence[str]) -> None:
    """Prints a row per player with return, success and steps; the best decoding has a star."""
    decoded = [name for name in names if every[name].decoding and every[name].figures.get("return")]
    best = max(decoded, key=lambda name: every[name].mean_return, default="")
    rows = [["", "episodes", "return", "success", "steps"]]
    for name in names:
        cells = (show(every[name].figures.get(figure)) for figure in rows[0][2:])
        rows.append([f"{name} *" if name == best else name, f"{every[name].episodes:,}", *cells])
    _print_rows(rows)


def _print_rows(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
        print_line("  ".join([f"{first:{widths[0]}}", *cells]))


def show(interval: Interval | None, median: bool = False) -> str:
    """A mean with its interval, and the `median` if that is wanted; unknown ones are left out."""
    if interval is None:
        return "-"
    return interval.spelt + ("" if interval.median is None or not median else f" median {exact(interval.median)}")


def report_evaluation(workdir: Path, evaluated: Mapping[str, Player]) -> None:
    """Writes the parts of the report, and training's again, whose curves have the lines of random play.

    `evaluated`: all players by their names.
    """
    players = figures.arranged(dict(sorted(evaluated.items())))
    written = [player for player in players[""] if player.decoding and player.path == "."]
    last = max((player.step for player in written), default=0)  # earlier checkpoints would be other curves
    decoded = [player for player in written if player.step == last]
    own = [player for player in players[""] if player not in written or player in decoded]
    players = players | {"": own}
    stage = Run(workdir).stage("evaluate", "evaluate")
    stage.section("Evaluation", *_evaluation(players))
    stage.section("Decoding with values", *(_sweep(own, decoded) if decoded else ()))
    stage.section("Token by token", *_letters(workdir, decoded))
    task, best = own[0].task if own else None, figures.own_of(own)
    if decoded:
        title = f"A language model that learnt from recorded games of {decoded[0].task}"
        stage.report(Facts(title=title, lead=_decoded(decoded), task=task))
    elif best:
        chance = figures.chance_of(players[""])
        stage.report(Facts(lead=_played(best, chance), beside=_beside(best, chance) if chance else None, task=task))
    else:
        stage.report(Facts(task=task))
    report_training(workdir, None, own)


def _main_figure(own: Player, chance: Player | None) -> str:
    """What the first screen is about: success if a goal was ever reached, else the return, or what stands for it."""
    measured = [own.figures.get("success"), chance.figures.get("success") if chance else None]
    if any(success and success.mean for success in measured):
        return "success"
    return figures.in_place_of_return((name for name in own.figures if own.figures[name]), own.meanings) or "return"


def _played(own: Player, chance: Player | None) -> Text:
    """A sentence on the agent and random play."""
    figure, many = _main_figure(own, chance), own.episodes > 1
    games, form = f"{own.episodes:,} games" if many else "one game", exact
    average = " on average" if many else ""
    before, after = f"In {games} its return is ", average
    if figure == "success":
        before, after, form = "It reaches the goal in ", f" of {games}", "{:.0%}".format
    elif figure != "return":
        before = f"In {games} it {figures.meaning_of(figure, own.meanings).verb} "
    body: list[Text] = []
    if measured := own.figures.get(figure):
        ends = "" if measured.low is None else f" (95 % interval {' to '.join(map(form, measured.band))})"
        chances = chance.figures.get(figure) if chance else None
        beside = f", random play {form(chances.mean)}" if chances else ""
        body = [before, Span(form(measured.mean)), f"{after}{ends}{beside}."]
    if not chance:
        body += [" " * bool(body), soft("To compare it with random play: --config.evaluate.policy=random.")]
    return body


def _beside(own: Player, chance: Player) -> Block | None:
    """A chart of what differs most between the agent and random play, if anything was measured."""
    if not (rows := _most_different(own, chance, _main_figure(own, chance))):
        return None
    others = "what differs most from random play" if len(rows) > 1 else "nothing else, as nothing clearly differs"
    said = f"{rows[0][0].capitalize()}, then {others}; means per game with 95 % intervals."
    return Box([Bars(rows, (label(own), "random play")), Paragraph(said, "soft")], "card")


def _most_different(own: Player, chance: Player, first: str) -> list[tuple[str, str, tuple[Interval, Interval]]]:
    """Rows of the first screen's chart: the figure `first`, then figures and behaviours that differ most.

    Of these, only those whose intervals do not overlap; first what the learnt reward pays and what goals ask for.
    """
    pairs, known = {}, own.meanings  # pairs: by title and note
    for name in dict.fromkeys([first, *figures.compared(own.figures, known)]):
        mine, theirs = own.figures.get(name), chance.figures.get(name)
        if mine and theirs and (name != "intrinsic_return" or own.reward == chance.reward):
            pairs[figures.words(name, known)] = mine, theirs
    if own.did and chance.did:
        for name in {**own.did, **chance.did}:
            pairs[name, ""] = own.did.get(name, NEVER), chance.did.get(name, NEVER)
    said = figures.words(first, known)
    gaps = {words: math.inf if words == said else figures.gap(pair) for words, pair in pairs.items()}
    asked = {figures.words("intrinsic_return", known)[0], *own.aims}
    order = sorted(gaps, key=lambda words: (gaps[words] < math.inf, words[0] not in asked, -gaps[words]))
    return [(*words, pairs[words]) for words in order if gaps[words] > 0][:ON_FIRST]


def _decoded(players: Sequence[Player]) -> Text:
    """Sentences on the return of a policy that writes, compared with cloning."""
    best, cloned = players[0], [player for player in players if not player.by_values]
    body: list[Text] = ["A language model learnt from them by ", Span(best.recipe)]
    if best in cloned:
        body += [f", and writes without values ({_kind(best)}). It gets a return of ", *_value(best)]
    else:
        body += [f", and writes by its values ({how(best)}). It gets a return of ", *_value(best)]
        if cloned:
            body += ["; without values, at its best, ", *_value(max(cloned, key=lambda one: one.mean_return))]
    return [*body, f". These are means over {best.episodes:,} games, with 95 % intervals."]


def how(player: Player) -> str:
    """The decoding of a policy that writes, in words."""
    return f"beta {player.beta:g}, {_kind(player)}"


def _kind(player: Player) -> str:
    return re.sub("^sample", "sampled", player.kind)


def _value(player: Player) -> Sequence[Text]:
    measured = player.figures.get("return")
    return (Span(exact(measured.mean)), f" {measured.words}") if measured else ("–",)


def _evaluation(players: Players) -> list[Block]:
    """All players; of a policy that is decoded in several ways, only the best decoding with and without values."""
    own, body = players[""], list[Block]()
    best: dict[tuple[str, bool], Player] = {}
    for player in own:  # a policy's best decoding comes first
        if player.decoding:
            best.setdefault((player.path, player.by_values), player)
    if few := [player for player in own if player in best.values() or not player.decoding]:
        named = [(label(player), player) for player in few]
        words = "All players play the same games, whose seeds are not used in training; means with 95 % bootstrap "
        body += [Paragraph(f"{words}intervals.", "soft"), figures.figures_table(named)]
        if not all(player.repeatable for player in few):
            words = (
                "This game cannot be repeated exactly: it can only be recorded while it is played, and the players' "
                "games differ."
            )
            body.append(Paragraph(words, "soft"))
        if ended := [player for player in few if player.ends]:
            body += [Heading("How the episodes ended"), *_ends(ended)]
        body += figures.behaviours(named)
    if varied := {protocol: others for protocol, others in players.items() if is_variation(protocol)}:
        names = list(dict.fromkeys(label(player) for others in varied.values() for player in others))
        rows: list[figures.FigureRow] = []  # one for each variation of the games
        for game, others in ({"as in training": own} | varied).items():
            by_name = {label(player): player.figures.get("success") for player in others}
            rows.append((game, "", [by_name.get(name) for name in names], True))
        words = (
            "Success rate in games that were not used in training, in the same episodes for each player, with 95 % "
            "bootstrap intervals."
        )
        body += [
            Heading("Variations of the games"),
            Paragraph(words, "soft"),
            figures.intervals_table(names, rows),
        ]
    for protocol, others in players.items():
        if protocol and protocol not in varied:
            rules = others[0].rules
            body += [Heading(rules[:1].upper() + rules[1:])]
            body += [figures.figures_table([(label(player), player) for player in others])]
    return body


def _ends(players: Sequence[Player]) -> list[Block]:
    """A bar per player with the shares of its episodes' ends; an end has the same colour for all players."""
    often: dict[str, float] = collections.defaultdict(float)
    for player in players:
        for end, count in player.ends.items():
            often[end] += count / max(player.episodes, 1)
    named = sorted(often, key=lambda end: (-often[end], end))[:CAUSES_SHOWN]
    colours = dict(zip(named, COLOURS, strict=False))
    body = list[Block]()
    for player in players:
        total = max(sum(player.ends.values()), 1)
        shares = [(end, times / total, colours[end]) for end, times in player.ends.items() if end in colours]
        shares.sort(key=lambda part: -part[1])
        if others := [times for end, times in player.ends.items() if end not in colours]:
            shares.append((f"{len(others)} other ends", sum(others) / total, "tie"))
        body += [Paragraph(label(player)), ShareBar(shares, thin=True)]
    return body


# ---- policies that write


def _sweep(every: Sequence[Player], players: list[Player]) -> list[Block]:
    """The part on decoding: a chart of return against beta, scripted players as lines; and a table."""
    by_kind: dict[str, list[tuple[float, Interval]]] = {player.kind: [] for player in players}
    for player in sorted(players, key=lambda player: player.beta):
        if interval := player.figures.get("return"):
            by_kind[player.kind].append((player.beta, interval))
    named = {{"sample": "sampled"}.get(kind, kind): measured for kind, measured in by_kind.items()}
    lines = {name: [(beta, interval.mean) for beta, interval in measured] for name, measured in named.items()}
    bands = {
        name: Band([beta for beta, _ in measured], *zip(*(one.band for _, one in measured), strict=True))
        for name, measured in named.items()
        if len(measured) > 1
    }
    recipe = next((player.recipe for player in players if player.recipe), "")
    words = f"{_decoding(players, recipe)} All players play the same games; means with 95 % bootstrap intervals."
    # Cloning by each kind of decoding, in its colour; then the scripted players.
    kinds, levels = list(by_kind), []
    for player in players:
        interval = player.figures.get("return")
        if interval and not player.by_values:
            name = f"cloned, {how(player).partition(', ')[2]}: {exact(interval.mean)}"
            levels.append(Level(name, interval, COLOURS[kinds.index(player.kind) % len(COLOURS)]))
    for at, player in enumerate(one for one in every if not one.path):
        if interval := player.figures.get("return"):
            colour, dash = COLOURS[(len(kinds) + at) % len(COLOURS)], DASHES[at % len(DASHES)]
            levels.append(Level(f"{player.name}: {exact(interval.mean)}", interval, colour, dash))
    chart = [Curves(lines, "beta", title="Return against beta", levels=levels, bands=bands)] if bands else []
    best, rows = max((player.mean_return for player in players), default=0.0), list[list[Text]]()
    for player in (*players, *(one for one in every if one not in players)):
        name = how(player) if player in players else player.name
        is_best = player in players and player.mean_return == best
        cells = [cell(player.figures.get(figure)) for figure in ("return", "success", "steps")]
        rows.append([Span(name) if is_best else name, f"{player.episodes:,}", *cells])
    table = Table(("", "games", "return", "success", "steps"), rows, numbers=(1,), kind="fits")
    return [Paragraph(words, "soft"), *chart, table]


def _decoding(players: Sequence[Player], recipe: str) -> str:
    """Sentences on the use of a recipe's values by these decodings."""
    sentences, reranked = [], any(player.by_values and player.kind.startswith("rerank") for player in players)
    if any(player.beta and not player.kind.endswith("without logits") for player in players):
        sentences.append(f"Decoded by logits + beta (Q - V), with the values of {recipe}.")
    if any(player.kind.endswith("without logits") for player in players):
        sentences.append(f"Without logits, beta (Q - V) alone decides, by the values of {recipe}.")
    if reranked:
        sentences.append(
            f"The kind rerank draws several texts and writes the one that the values of {recipe} rank first."
        )
    if not sentences:
        return f"Written by the policy of {recipe}, without values."
    if any(not player.beta for player in players):
        sentences.append(f"Beta 0{' without rerank' if reranked else ''} is the policy by itself.")
    return " ".join(sentences)


def _letters(workdir: Path, players: Sequence[Player]) -> list[Block]:
    """Games of the best decoding with values, then of the best without: a block per game, a table per text."""
    body = list[Block]()
    for valued in (True, False):
        decoded = [player for player in players if player.by_values is valued]
        if not decoded:
            continue
        player = max(decoded, key=lambda one: one.mean_return)
        file = workdir / "evaluate" / player.name / "letters.json"
        record = files.read_json(file)["episodes"] if file.exists() else {}
        for episode, turns in list(record.items())[:GAMES]:
            total = sum(turn["reward"] for turn in turns)
            body.append(Heading(f"{how(player)}: game {episode}, return {exact(total)}"))
            body.append(Box([_written(turn) for turn in turns], "wide"))
    words = (
        "Under each token that was written (of Wordle, a letter): the most probable ones by the policy alone, below "
        "them those with beta (Q - V), both at temperature 1; and Q - V of the one that was taken."
    )
    return [Paragraph(words, "soft"), *body] if body else []


def _written(turn: Mapping[str, Any]) -> Block:
    """One text of the agent's: its tokens side by side, each over both distributions."""
    tokens, marks = turn["tokens"], SAID.findall(turn["heard"])
    letters = [one["token"] for one in tokens[: len(marks)]] == list(turn["said"])
    coloured = len(marks) == len(turn["said"]) and "".join(marks) == turn["heard"] and letters
    colours = [MARKS[mark] for mark in marks] if coloured else []
    cells = []
    for one, colour in itertools.zip_longest(tokens, colours[: len(tokens)]):
        advantage = "" if one["advantage"] is None else f"{one['advantage']:+.2f}"
        cells.append((one["token"], colour or "", advantage, ((one["policy"], "tie"), (one["shifted"], "first"))))
    heard = [] if coloured or not turn["heard"] else [Paragraph(turn["heard"], "soft")]
    return Box([Letters(cells), *heard])


# ---- replays


def packed_replay(file: Path, player: str) -> PackedReplay:
    """A replay for the report. Its title: the name of who plays, episode, reason of choice, returns, end."""
    replay = load_replay(file, "--workdir")
    metadata = replay.metadata
    words = [player, f"episode {metadata['episode']}"]
    words += [str(word) for word in metadata["chosen"] if not str(word).isdigit()]
    words.append(f"return {exact(float(replay.reward.sum()))}")
    if not np.isnan(replay.intrinsic).all():
        words.append(f"{replay.rewarded_by} {exact(float(np.nansum(replay.intrinsic)))}")
    words.append(str(metadata["cause"] or END_NAMES[metadata["end"]]))
    reached = metadata["end"] == EndStatus.TASK_SUCCESSFUL.name.lower()
    return PackedReplay(" · ".join(words), replay.steps, reached, pack(replay))


def pack(replay: Replay) -> dict[str, Any]:
    """A replay as the page stores it, about ten kilobytes for a thousand steps.

    `packed` is zlib's deflate, in base64, of

        chars, colors    [T + 1, 24 * 80] uint8: the first frame, then each frame XOR the one before
        reward, z, intrinsic, value, probability    [T] float32
        odds             [T, A] float32: probabilities of all actions; A = 0 if they are not known
        count, message   [T + 1] int32: how often the message was seen, and its index in `messages`
        action           [T] int32
        chooser          [T] int32: who chose the action, an index into `choosers`; missing if there is only one
        picture          [T + 1] int32: index of the frame's picture in `pictures`; -1: no picture
        cursor           [T + 1, 2] uint8

    concatenated, little-endian. assets/player.js unpacks it in the browser.
    """
    numbers: dict[bytes, int] = {}
    message = np.array([numbers.setdefault(line.tobytes(), len(numbers)) for line in replay.message])
    blank = (SHOWN[replay.chars] == ord(" ")) & (replay.colors < REVERSED)  # its colour is invisible
    odds = np.zeros((replay.steps, 0)) if replay.odds is None else replay.odds
    pictures, picture = page_pictures(replay)
    chars, colors = SHOWN[replay.chars], np.where(blank, 0, replay.colors).astype(np.uint8)
    for frames in (chars, colors):
        frames[1:] ^= frames[:-1].copy()
    floats = [replay.reward, replay.z, replay.intrinsic, replay.value, replay.probability, odds]
    whole = [replay.count, message, replay.action, *([] if replay.chooser is None else [replay.chooser]), picture]
    numbered = [one.astype(kind) for kind, parts in (("<f4", floats), ("<i4", whole)) for one in parts]
    packed = b"".join(part.tobytes() for part in (chars, colors, *numbered, replay.cursor))
    return {
        "steps": replay.steps,
        "late": int(replay.is_late),
        "paid": replay.rewarded_by,
        "known": odds.shape[1],
        "actions": [str(name) for name in replay.metadata["action_names"]],
        "choosers": None if replay.chooser is None else replay.choosers,
        "messages": [decode(np.frombuffer(line, np.uint8)) for line in numbers],
        "pictures": [base64.b64encode(one).decode() for one in pictures],
        "box": used_box(replay),
        "packed": base64.b64encode(zlib.compress(packed, 9)).decode(),
    }


def page_pictures(replay: Replay) -> tuple[list[bytes], np.ndarray]:
    """The distinct pictures of a replay, and the index of each frame's picture. [T + 1] int32

    They are encoded again from their pixels, smaller. If there are more than PICTURES, every second, third, ... of them
    is kept.
    """
    numbers = np.full(replay.steps + 1, -1, np.int32)
    pictures: list[bytes] = []
    if replay.picture_ends is None:
        return pictures, numbers
    own = np.flatnonzero(np.diff(replay.picture_ends, prepend=0))
    for at in own[:: -(-len(own) // PICTURES) or 1]:
        numbers[at:] = len(pictures)
        picture, out = open_picture(replay.picture(int(at))), io.BytesIO()
        picture.thumbnail((PICTURE_SIDE, PICTURE_SIDE))
        picture.save(out, "WEBP", quality=PICTURE_QUALITY, method=2)
        pictures.append(out.getvalue())
    return pictures, numbers


def used_box(replay: Replay) -> list[int]:
    """The used box of the screen over all frames: top, left, height, width; zeros for an empty screen.

    The first two rows are left out if they repeat the message, which the page shows below the screen.
    """
    seen = ((SHOWN[replay.chars] != ord(" ")) | (replay.colors >= REVERSED)).any(0)
    message = SHOWN[replay.message[:, : 2 * COLUMNS]].reshape(-1, 2, COLUMNS)
    if np.array_equal(SHOWN[replay.chars[:, :2]], message):
        seen[:2] = False
    if not seen.any():
        return [0, 0, 0, 0]
    (top, bottom), (left, right) = (np.flatnonzero(seen.any(axis))[[0, -1]].tolist() for axis in (1, 0))
    return [top, left, bottom + 1 - top, right + 1 - left]
