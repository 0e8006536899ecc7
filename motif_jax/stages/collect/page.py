"""The parts of the report on the dataset of pairs and on transcripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from motif_jax.captions import decode
from motif_jax.files import read_json
from motif_jax.pages.blocks import quoted, table, tiles
from motif_jax.pages.charts import columns
from motif_jax.pages.formats import amount, esc, exact
from motif_jax.preferences.store import PairDataset
from motif_jax.run import Head, Run, date_of
from motif_jax.transcripts.decision_points import game_returns
from motif_jax.transcripts.store import Transcripts

SPREADS = {"score": "Score so far", "max_depth": "Deepest level so far"}  # titles of the histograms, by array of info/
COMMON = 10  # captions shown
BINS = 30


def report_pairs(workdir: Path) -> None:
    """Writes the part on the dataset: counts, spread of the moments, most frequent messages."""
    metadata, dataset = read_json(workdir / "dataset/dataset.json"), PairDataset(workdir / "dataset")
    run = workdir / "dataset/run.json"
    ran = read_json(run) if run.exists() else {}  # not of a published dataset
    table_of_captions, ids = dataset.captions()
    figures = [(f"{len(dataset):,}", "pairs of moments"), (f"{len(table_of_captions):,}", "different messages")]
    if metadata.get("episodes"):
        figures.append((f"{metadata['episodes']:,}", "episodes"))
    if metadata.get("steps"):
        figures.append((amount(metadata["steps"]), "steps played"))
    if ran.get("steps_per_s"):
        figures.append((f"{ran['steps_per_s']:,.0f}", "steps/s while collecting"))
    if "share_without_message" in metadata:
        figures.append((f"{metadata['share_without_message']:.0%}", "of the moments show no message"))
    same = float((ids[:, 0] == ids[:, 1]).all(-1).mean())
    figures.append((f"{same:.0%}", "of the pairs show equal captions"))
    by, made = metadata.get("collector", ""), date_of((workdir / "dataset/dataset.json").stat().st_mtime)
    words = f'<p class="soft">Played by {esc(by)}; {esc(made)}.</p>' if by else ""
    spreads = f'<div class="pair">{"".join(_spreads(dataset))}</div>'
    stage = Run(workdir).stage("collect", "dataset")
    stage.section("The dataset", words, tiles(figures), spreads, *_common(dataset))
    stage.report(Head(
        subject="A dataset", without_aim="of moments of a game", task=metadata.get("task"), made=made,
        machine={"processor": ran.get("machine", ""), "versions": metadata.get("versions", {})},
        asked=f"<b>{len(dataset):,}</b> pairs of moments with {len(table_of_captions):,} different messages were "
        "collected.",
    ))  # fmt: skip


def _spreads(dataset: PairDataset) -> list[str]:
    """Histograms of the arrays of info/ that SPREADS names, as HTML."""
    histograms = []
    for name, title in SPREADS.items():
        if name not in dataset.info:
            continue
        values = np.asarray(dataset.info[name]).reshape(-1)
        values = values[np.isfinite(values)]
        if not len(values):
            continue
        low, high = int(values.min()), int(values.max())
        if high - low < BINS:  # whole numbers: a column each
            of = [amount(value) for value in range(low, high + 1)]
            heights = np.bincount(values.astype(int) - low).tolist()
            chart = columns(heights, of[:1] if high == low else (of[0], of[-1]), of=of)
        else:
            chart = _histogram(values, amount)
        histograms.append(f"<div><h3>{title}</h3>{chart}</div>")
    return histograms


def _histogram(values: np.ndarray, word: Callable[[float], str]) -> str:
    """A histogram whose numbers are formatted by `word`, as HTML."""
    heights, edges = (array.tolist() for array in np.histogram(values, bins=BINS))
    ends = word(edges[0]), word((edges[0] + edges[-1]) / 2), word(edges[-1])
    return columns(heights, ends, of=[f"{word(edge)} and more" for edge in edges[:-1]])


def _common(dataset: PairDataset) -> list[str]:
    """A table of the most frequent messages of the moments, as HTML."""
    captions, _ = dataset.captions()
    counts, moments = captions.counts, dataset.num_pairs * 2 * dataset.length
    top = np.argsort(-counts, kind="stable")[:COMMON]
    messages = captions.messages
    rows = [[f"{counts[at] / moments:.1%}", quoted(decode(messages[at]))] for at in top.tolist()]
    return ["<h3>Most frequent messages</h3>", table(("moments", "message"), rows, numbers=(0,), kind="fits")]


def report_transcripts(workdir: Path) -> None:
    """Writes the part on the transcripts."""
    store = Transcripts(workdir / "transcripts", "--workdir")
    returns, made = game_returns(store), store.record["provenance"]
    by = ", then ".join(str(made[name]) for name in ("collector", "policies", "branch_player") if made.get(name))
    figures = [
        (f"{len(returns):,}", "episodes"),
        (f"{store.record['actions']:,}", "texts of the agent"),
        (f"{store.record['texts']:,}", "different texts"),
    ]
    if returns.any():  # a manual is without rewards
        figures.append((exact(float(returns.mean())), "mean return"))
        figures.append((exact(float(returns.max())), "best return"))
    body = [f'<p class="soft">Played by {esc(by)}.</p>' if by else "", tiles(figures)]
    if np.ptp(returns):
        body += ["<h3>Returns</h3>", _histogram(returns, exact)]
    stage = Run(workdir).stage("collect", "transcripts")
    stage.section("The transcripts", *body)
    who = f" played by <b>{esc(by)}</b>" if by else ""
    asked = f"From <b>{len(returns):,}</b> episodes{who}, mean return {exact(float(returns.mean()))}."
    stage.report(Head(subject="Transcripts", without_aim="of games", asked=asked if returns.any() else None))
