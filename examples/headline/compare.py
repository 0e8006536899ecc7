"""Does a language model's reward help at equal steps? The tables and the picture of docs/results/headline.md.

    python examples/headline/compare.py runs/headline/rows.csv docs/results/headline.svg    # rows of run.py

Prints each arm's figures after the last number of steps, and its score less that of the arm `score` with the same seed.
A figure of an agent is a mean over games; brackets are 95 % t intervals over seeds. Fewer than three seeds have none.
"""

import statistics
import sys
from pathlib import Path

from config import ARMS
from run import CHALLENGE, FIGURES, RANDOM, TASK, read_rows

TITLES = {name: words for name, (words, _, _) in ARMS.items()} | {RANDOM: "random play"}
SHOWN = dict(zip(FIGURES, ("score", "deepest level", "experience level", "turns", "progression, %"), strict=True))
COLOURS = dict(zip(ARMS, ("#444", "#1a8a4a", "#7ac143", "#1f5fbf", "#6aa9ff", "#c2571a"), strict=True))
T95 = {3: 4.303, 4: 3.182, 5: 2.776}  # of Student's distribution, by the number of seeds
WIDTH, HEIGHT, GAP = 340, 210, 70  # of a chart, and between charts


def interval(values):
    """The mean over seeds and its 95 % t interval; without one for other numbers of seeds than T95 has."""
    mean = statistics.mean(values)
    half = T95[len(values)] * statistics.stdev(values) / len(values) ** 0.5 if len(values) in T95 else 0.0
    return mean, mean - half, mean + half


def gather(rows):
    """The figures of each seed, by arm, protocol and steps."""
    found = {}
    for row in rows:
        figures = {name: float(row[name]) for name in (*FIGURES, "score_median")}
        found.setdefault((row["arm"], row["protocol"], row["steps"]), {})[row["seed"]] = figures
    return found


def cell(values, digits=1):
    """A mean with its interval, as text."""
    mean, low, high = interval(values)
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]" if len(values) in T95 else f"{mean:.{digits}f}"


def table(found, arm_titles, last):
    """The lines of the table of all arms after `last` steps."""
    names = [*SHOWN.values(), "score by the Challenge's rules", "its median", "score less that of the first"]
    lines = [f"| rewards | seeds | {' | '.join(names)} |", "| --- |" + " ---: |" * (len(names) + 1)]
    base = found.get(("score", TASK, last), {})
    for arm, title in arm_titles.items():
        steps = 0 if arm == RANDOM else last
        seeds, challenge = (found.get((arm, protocol, steps), {}) for protocol in (TASK, CHALLENGE))
        if not seeds:
            continue
        cells = [cell([one[name] for one in seeds.values()], 1 + (name not in ("score", "turns"))) for name in SHOWN]
        cells += [
            cell([one[name] for one in challenge.values()]) if challenge else "–" for name in ("score", "score_median")
        ]
        less = [one["score"] - base[seed]["score"] for seed, one in seeds.items() if seed in base]
        cells.append(cell(less) if less and arm != "score" else "–")
        lines.append(f"| {title} | {len(seeds)} | {' | '.join(cells)} |")
    return lines


def chart(found, name, left, top):
    """One figure over the steps as SVG: a line for each arm, with the interval over seeds at each point."""
    points = {
        arm: {steps: interval([one[name] for one in seeds.values()])
              for (other, protocol, steps), seeds in sorted(found.items()) if (other, protocol) == (arm, TASK)}
        for arm in TITLES
    }  # fmt: skip
    drawn = [one for steps in points.values() for one in steps.values()]
    largest = 1.05 * max(high for _, _, high in drawn) or 1.0
    last = max(steps for steps_of_arm in points.values() for steps in steps_of_arm) or 1

    def place(steps, value):
        return left + WIDTH * steps / last, top + HEIGHT * (1 - min(max(value / largest, 0), 1))

    parts = [f'<text x="{left}" y="{top - 10}" font-weight="bold">{SHOWN[name]}</text>']
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        (x, y), (across, bottom) = place(0, tick * largest), place(tick * last, 0)
        parts.append(f'<path d="M{x} {y:.1f}h{WIDTH}" stroke="#eee"/>')
        parts.append(f'<text x="{x - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#666">{tick * largest:.3g}</text>')
        million = f"{tick * last / 1e6:g} M"
        parts.append(f'<text x="{across:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#666">{million}</text>')
    for order, (arm, steps_of_arm) in enumerate(points.items()):
        if arm == RANDOM:
            for mean, _, _ in steps_of_arm.values():
                x, y = place(0, mean)
                parts.append(f'<path d="M{x} {y:.1f}h{WIDTH}" stroke="#999" stroke-dasharray="4 3"/>')
            continue
        shift, places = 2 * order - 5, []  # intervals stand side by side
        for steps, (mean, low, high) in steps_of_arm.items():
            (x, y), (_, above), (_, below) = place(steps, mean), place(steps, high), place(steps, low)
            places.append(f"{x + shift:.1f},{y:.1f}")
            parts.append(
                f'<path d="M{x + shift:.1f} {above:.1f}V{below:.1f}" stroke="{COLOURS[arm]}" stroke-width="1.5"/>'
            )
            parts.append(f'<circle cx="{x + shift:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[arm]}"/>')
        if places:
            line = f'<polyline points="{" ".join(places)}" fill="none"'
            parts.append(f'{line} stroke="{COLOURS[arm]}" stroke-width="2"/>')
    return parts


def draw(found):
    """The figures as SVG, with the names of the arms that have rows."""
    width, bottom = 2 * (WIDTH + GAP) + 10, 2 * (HEIGHT + GAP) + 20
    arms = [arm for arm in TITLES if any(key[0] == arm for key in found)]
    height = bottom + 18 * len(arms) + 8
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
             f'font-size="12"><rect width="{width}" height="{height}" fill="white"/>']  # fmt: skip
    for number, name in enumerate(("score", "max_depth", "experience_level", "progression")):
        parts += chart(found, name, 60 + number % 2 * (WIDTH + GAP), 40 + number // 2 * (HEIGHT + GAP))
    for number, arm in enumerate(arms):
        y = bottom + 18 * number
        dashes = 'stroke="#999" stroke-dasharray="4 3"' if arm == RANDOM else f'stroke="{COLOURS[arm]}"'
        parts.append(f'<path d="M60 {y}h24" {dashes} stroke-width="2"/><text x="92" y="{y + 4}">{TITLES[arm]}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main(rows, picture):
    """Prints the table, and draws the picture."""
    found = gather(read_rows(Path(rows)))
    last = max(steps for _, _, steps in found)
    print("\n".join(table(found, TITLES, last)))
    Path(picture).write_text(draw(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
