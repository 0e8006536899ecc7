"""The report's part on a judge that was asked during training: number of labels, latency, latest answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from motif_jax.pages.blocks import quoted, table, tiles
from motif_jax.pages.charts import curves
from motif_jax.pages.formats import amount, esc
from motif_jax.rewards.choice import ONLINE
from motif_jax.rewards.online.online_section import GoalTurn, asks_pairs, is_anchored, parse_goals
from motif_jax.stages.report.audit import find_flown, of_flown
from motif_jax.stages.report.found import Kinds, checked, read_object, typed
from motif_jax.stages.report.parts import Facts, Found
from motif_jax.stages.report.policy import curve, mean_of
from motif_jax.system.files import parse_json
from motif_jax.system.foreign import open_regular

SHOWN = 20  # questions
READ_BYTES = 2**18  # of the end of opinions.jsonl, which may be large
OPINION: Kinds = {
    "env_steps": int, "caption": str, "other": str, "yes": float, "goal": str, "by": str, "said": str, "seconds": float,
}  # fmt: skip


class Judged(NamedTuple):
    """The judge of a training run."""

    kind: str
    anchored: bool | None  # whether ranking compares captions with a moment without a message; None for other kinds
    goals: tuple[GoalTurn, ...]
    last: list[Facts]  # the last answers, the newest first

    @property
    def by(self) -> list[str]:
        """The models that gave the last answers."""
        return sorted({row["by"] for row in self.last if "by" in row})

    @property
    def schedule(self) -> str:
        """The goals, in words."""
        return ", ".join(
            turn.goal if not turn.step else f"{turn.goal} from step {amount(turn.step)} on" for turn in self.goals
        )


def find_judged(path: Path) -> Judged | None:
    """The judge of a workdir's training; None if its policy was trained without one."""
    file = path / "policy" / "opinions.jsonl"
    if not file.is_file():
        return None
    config = read_object(path / "policy" / "config.json") or {}
    with checked(path / "policy" / "config.json"):
        section = config["policy"]["online"]
        kind, goals = str(section["kind"]), parse_goals(str(section["goals"]))
        anchored = is_anchored(section) if asks_pairs(kind) else None
    last = []
    with checked(file), open_regular(file) as lines:
        lines.seek(max(os.fstat(lines.fileno()).st_size - READ_BYTES, 0))
        if lines.tell():
            lines.readline()  # the remainder of a line
        whole = [line for line in lines.read().splitlines(keepends=True) if line.endswith(b"\n")]
        last = [typed(parse_json(line), OPINION) for line in whole[-SHOWN:]]
        if any("caption" not in row or "env_steps" not in row for row in last):
            raise ValueError("an answer without its caption")
    return Judged(kind, anchored, goals, last[::-1])


def of_judge(found: Found, judged: Judged) -> list[str]:
    """The part on the judge, as HTML."""
    training = found.training
    if not training:
        return []
    rows, last = training.rows, training.rows[-1]

    def figure(name: str) -> float:
        return last.get(f"reward/{ONLINE}_{name}", 0.0)

    steps = max(training.steps, 1)
    figures = [
        (f"{figure('labels'):,.0f}", f"labels, for {figure('captions'):,.0f} different captions"),
        (f"{1e6 * figure('labels') / steps:,.0f}", "labels per million steps"),
    ]
    if share := mean_of(rows, f"reward/{ONLINE}_labelled_share"):
        figures.append((f"{share:.1%}", "of the steps showed a caption with a label"))
    if wait := mean_of(rows, f"reward/{ONLINE}_latency_s_p50"):
        figures.append((f"{1000 * wait:,.0f} ms", "from question to answer, median"))
    if age := mean_of(rows, f"reward/{ONLINE}_age_s_p95"):
        figures.append((f"{age:,.1f} s", "from first sight to a label, 95th percentile"))
    if came := figure("answers"):
        figures.append((f"{figure('answers_read') / came:.1%}", f"of {came:,.0f} answers could be read"))
    figures.append((f"{figure('refused'):,.0f}", "questions given up, as no answer could be read"))

    def line(name: str, scale: float = 1.0) -> list[tuple[float, float]]:
        return [(x, scale * y) for x, y in curve(training, f"reward/{ONLINE}_{name}")]

    charts = [
        ({"captions": line("captions"), "labels": line("labels")}, "Captions and labels", "different captions"),
        ({"labelled": line("labelled_share", 100)}, "Steps with a label", "% of steps"),
        ({"median": line("latency_s_p50", 1000), "95 %": line("latency_s_p95", 1000)}, "Time to answer", "ms"),
        ({"median": line("age_s_p50"), "95 %": line("age_s_p95")}, "Age of labels", "s since first seen"),
        ({"waiting": line("waiting")}, "Questions that wait", ""),
        ({"helpful": line("yes_share", 100)}, "Answers that are yes", "%"),
        ({"neutral": line("audit_neutral", 100)}, "Pay for neutral captions", "% of the pay, by the labels then"),
        ({"down": line("down_s")}, "The judge is down", "s"),
        ({"accuracy": line("accuracy", 100)}, "Accuracy of the network", "% of lessons' labels"),
    ]
    drawn = [
        curves({name: points for name, points in lines.items() if points}, "steps", title=title, note=note)
        for lines, title, note in charts
        if any(value for points in lines.values() for _, value in points)
    ]
    body = [f'<p class="soft">{esc(words(judged))}</p>', tiles(figures), f'<div class="charts">{"".join(drawn)}</div>']
    if flown := find_flown(found.path):
        body += ["<h3>The last audit during training</h3>", *of_flown(flown)]
    return [*body, "<h3>Asked last</h3>", answers(judged.last)] if judged.last else body


def words(judged: Judged) -> str:
    """The kind of reward, the models that were asked, and the schedule of goals."""
    ways = {None: "", True: ": captions against a moment without a message", False: ": captions against each other"}
    kind = judged.kind + ways[judged.anchored]
    return " · ".join([kind, *(f"asked: {name}" for name in judged.by), f"goal: {judged.schedule}"])


def answers(rows: list[Facts]) -> str:
    """A table of questions with their answers, as HTML."""
    pairs = any("other" in row for row in rows)
    cells = []
    for row in rows:
        yes = row.get("yes")
        verdict = "unreadable" if yes is None else f"{yes:.2f}".rstrip("0").rstrip(".")
        shown = quoted(row["caption"]) + (f" or {quoted(row['other'])}" if "other" in row else "")
        cells.append([shown, esc(verdict), esc(row.get("said", "")), f"{row['env_steps']:,}"])
    head = ("captions" if pairs else "caption", "P(second is better)" if pairs else "P(helpful)", "said", "step")
    return table(head, cells, numbers=(1, 3))
