"""How good must a judge be? The table and the picture of docs/results/judges.md, from finished runs.

    python examples/judges/compare.py runs/judges docs/results/judges.svg

runs/judges/JUDGE/seed-S are workdirs of configs/quickstart.py; those of the judge `rules` have the rules of the game as
judge, and their rewards value the episodes of all agents.
"""

import collections
import itertools
import json
import sys
from pathlib import Path

import numpy as np

from motif_jax.annotation.backends import Lexicon
from motif_jax.captions import decode
from motif_jax.envs.texts import texts_of
from motif_jax.episodes.playback import messages_of, read_tracks
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.store import PairDataset, Preference
from motif_jax.rewards.learnt_source import load_reward

FIGURES = ("agreement", "decided", "score", "level", "kills", "standing", "return")


def rows_of(folder):
    """The evaluated episodes of a player."""
    return [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]


def of_labels(workdir, config):
    """Agreement with the rules on distinct questions that both decide, and the share that the judge decides."""
    dataset = PairDataset(workdir / "dataset")
    (name,) = dataset.preference_names()
    questions, rules = Questions(dataset, "msg"), Lexicon(texts_of(config["env"], ""), config["annotate"]["goal"])
    rows = questions.rows()
    labels = np.asarray(dataset.preference(name))[rows]
    worth = np.array([[rules.worth(text)[0] for text in questions.text(number)] for number in range(len(questions))])
    worth = np.where(questions.turned[rows][:, None], worth[:, ::-1], worth)
    both = (labels < Preference.TIE) & (worth[:, 0] != worth[:, 1])
    return (labels == (worth[:, 1] > worth[:, 0]))[both].mean(), (labels < Preference.TIE).mean()


def learnt_return(folder, config, reward, threshold):
    """Mean return of a player's episodes under a learnt reward, as an agent is paid it."""
    rows, tracks, power = rows_of(folder), read_tracks(folder / "tracks.npz"), config["policy"]["count_exponent"]
    episodes = [moment.messages[1:] for moment in messages_of(config["env"], config["seed"], rows, tracks)]
    captions = sorted(set(itertools.chain(*episodes)))
    values = reward([decode(np.frombuffer(message, np.uint8)) for message in captions]).normalised
    paid = {message: max(z, 0.0) if z > threshold else 0.0 for message, z in zip(captions, values, strict=True)}
    times = (collections.Counter(messages) for messages in episodes)
    return np.mean(
        [sum(paid[one] * sum(n**-power for n in range(1, many + 1)) for one, many in each.items()) for each in times]
    )


def rules_of(home, seed):
    """The reward that an agent learnt from, with the rules as judge, and its threshold; None before it is trained."""
    if not (home / f"rules/seed-{seed}/report/index.html").exists():
        return None
    (summary,) = (home / f"rules/seed-{seed}/evaluate").glob("policy-*/summary.json")
    return load_reward(home / f"rules/seed-{seed}"), json.loads(summary.read_text())["threshold"] or 0.0


def of_player(folder, config, rules):
    """The figures of a player; `rules`: a reward, and its threshold."""
    rows = rows_of(folder)
    did = [row["did"] for row in rows]
    found = {
        "score": np.mean([row["score"] for row in rows]),
        "level": np.mean([row["experience_level"] for row in rows]),
        "kills": np.mean([one.get("beats a monster", 0) for one in did]),
        "standing": np.mean([one.get("finds an item", 0) for one in did]),
    }
    return found | {"return": learnt_return(folder, config, *rules) if rules else np.nan}


def gather(home):
    """The figures of each seed, by judge; random play is a judge of its own."""
    found = {}
    for workdir in sorted(home.glob("*/seed-*")):
        if not (workdir / "report/index.html").exists():
            continue
        config = json.loads((workdir / "config.json").read_text())
        rules = rules_of(home, config["seed"])
        (player,) = (workdir / "evaluate").glob("policy-*")
        agreement, decided = of_labels(workdir, config)
        row = {"agreement": agreement, "decided": decided} | of_player(player, config, rules)
        found.setdefault(workdir.parent.name, {})[config["seed"]] = row
        if workdir.parent.name == "rules":
            chance = {"agreement": np.nan, "decided": np.nan} | of_player(workdir / "evaluate/random", config, rules)
            found.setdefault("random play", {})[config["seed"]] = chance
    return found


def interval(values, rng):
    """The mean over seeds, and its 95 % bootstrap interval."""
    values = np.array([value for value in values if np.isfinite(value)])
    if not len(values):
        return (np.nan,) * 3
    means = values[rng.integers(len(values), size=(2000, len(values)))].mean(1)
    return values.mean(), *np.quantile(means, (0.025, 0.975))


def colour_of(name):
    """Blue: rules, and errors at random; orange: errors that stick to messages; green: language models."""
    kind = name.rstrip("0123456789")
    return {"rules": "#1f5fbf", "q": "#1f5fbf", "c": "#c2571a"}.get(kind, "#1a8a4a")


def draw(points):
    """Agreement against return as SVG: dots with the interval over seeds."""
    grey = 'fill="#666"'
    top = 1.1 * max(high for _, (_, _, high) in points.values())

    def place(x, y):
        return 60 + 560 * (x - 0.45) / 0.57, 300 - 270 * y / top

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="660" height="350" font-family="sans-serif" font-size="12">'
    ]
    parts.append('<rect width="660" height="350" fill="white"/>')
    for tick in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        x, y = place(tick, 0)
        parts.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle" fill="#666">{tick:.0%}</text>')
    for tick in range(0, int(top) + 1, 5):
        x, y = place(0.45, tick)
        parts.append(f'<path d="M{x} {y}h560" stroke="#eee"/>')
        parts.append(f'<text x="{x - 6}" y="{y + 4}" text-anchor="end" {grey}>{tick}</text>')
    parts.append(
        '<text x="340" y="340" text-anchor="middle">agreement with the rules, of the questions that both decide</text>'
    )
    parts.append('<text x="60" y="18">return of the agent, by the reward learnt from the rules</text>')
    for name, (x, (mean, low, high)) in points.items():
        if name == "random play":
            (left, y), (_, above), (_, below) = place(0.45, mean), place(0, high), place(0, low)
            parts.append(f'<path d="M{left} {y}h560" stroke="#999" stroke-dasharray="4 3"/>')
            parts.append(
                f'<rect x="{left}" y="{above}" width="560" height="{below - above}" fill="#ddd" opacity="0.6"/>'
            )
            parts.append(f'<text x="{left + 556}" y="{y - 5}" text-anchor="end" fill="#666">random play</text>')
            continue
        (at, y), (_, above), (_, below) = place(x, mean), place(x, high), place(x, low)
        colour = colour_of(name)
        parts.append(f'<path d="M{at} {above}V{below}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<circle cx="{at}" cy="{y}" r="4" fill="{colour}"/><text x="{at + 7}" y="{y + 4}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main(home, picture):
    """Prints the table, and draws the picture."""
    found, rng, points = gather(Path(home)), np.random.default_rng(0), {}
    print("| judge | seeds | " + " | ".join(FIGURES) + " |\n| --- |" + " ---: |" * (len(FIGURES) + 1))
    for name, seeds in found.items():
        known = {figure: interval([row[figure] for row in seeds.values()], rng) for figure in FIGURES}
        points[name] = known["agreement"][0], known["return"]
        cells = [
            "–"
            if np.isnan(mean)
            else f"{mean:.0%}"
            if key in FIGURES[:2]
            else f"{mean:.1f} [{low:.1f}, {high:.1f}]"
            if len(seeds) > 1
            else f"{mean:.1f}"
            for key, (mean, low, high) in known.items()
        ]
        print(f"| {name} | {len(seeds)} | " + " | ".join(cells) + " |")
    Path(picture).write_text(draw(points))


if __name__ == "__main__":
    main(*sys.argv[1:])
