"""The report's parts on the dataset of pairs and its preferences, and warnings about unreadable answers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from motif_jax.annotation.asking import too_few
from motif_jax.captions import decode
from motif_jax.pages.blocks import quoted, table, tiles
from motif_jax.pages.charts import columns
from motif_jax.pages.formats import amount, esc
from motif_jax.rewards.choice import ONLINE
from motif_jax.stages.annotate.page import label_bar
from motif_jax.stages.report.found import Kinds, checked, read_object, typed
from motif_jax.stages.report.parts import SPREADS, Annotation, Found, Pairs, Training

COMMON = 10  # captions shown
BINS = 30


def of_pairs(pairs: Pairs) -> list[str]:
    """The part on the dataset, as HTML: counts, spread of the moments, most frequent messages."""
    facts, dataset = pairs.facts, pairs.dataset
    table_of_captions, ids = dataset.captions()
    figures = [(f"{len(dataset):,}", "pairs of moments"), (f"{len(table_of_captions):,}", "different messages")]
    if facts.get("episodes"):
        figures.append((f"{facts['episodes']:,}", "episodes"))
    if facts.get("steps"):
        figures.append((amount(facts["steps"]), "steps played"))
    if pairs.ran.get("steps_per_s"):
        figures.append((f"{pairs.ran['steps_per_s']:,.0f}", "steps/s while collecting"))
    if "share_without_message" in facts:
        figures.append((f"{facts['share_without_message']:.0%}", "of the moments show no message"))
    same = float((ids[:, 0] == ids[:, 1]).all(-1).mean())
    figures.append((f"{same:.0%}", "of the pairs show equal captions"))
    by = facts.get("collector", "")
    words = f'<p class="soft">Played by {esc(by)}; {esc(pairs.made)}.</p>' if by else ""
    return [words, tiles(figures), f'<div class="pair">{"".join(_spreads(pairs))}</div>', *_common(pairs)]


def _spreads(pairs: Pairs) -> list[str]:
    """Histograms of the arrays of info/ that SPREADS names, as HTML."""
    found = []
    for name, title in SPREADS.items():
        if name not in pairs.dataset.info:
            continue
        values = np.asarray(pairs.dataset.info[name]).reshape(-1)
        values = values[np.isfinite(values)]
        if not len(values):
            continue
        low, high = int(values.min()), int(values.max())
        if high - low < BINS:  # whole numbers: a column each
            heights = np.bincount(values.astype(int) - low).tolist()
            words: tuple[str, ...] = (amount(low), amount(high)) if high > low else (amount(low),)
            of = [amount(low + at) for at in range(len(heights))]
        else:
            heights, edges = (array.tolist() for array in np.histogram(values, bins=BINS))
            words = (amount(low), amount((low + high) / 2), amount(high))
            of = [f"{amount(edge)} and more" for edge in edges[:-1]]
        found.append(f"<div><h3>{title}</h3>{columns(heights, words, of=of)}</div>")
    return found


def _common(pairs: Pairs) -> list[str]:
    """A table of the most frequent messages of the moments, as HTML."""
    captions, _ = pairs.dataset.captions()
    counts, moments = captions.counts, pairs.dataset.num_pairs * 2 * pairs.dataset.length
    top = np.argsort(-counts, kind="stable")[:COMMON]
    messages = captions.messages
    rows = [[f"{counts[at] / moments:.1%}", quoted(decode(messages[at]))] for at in top.tolist()]
    return ["<h3>Most frequent messages</h3>", table(("moments", "message"), rows, numbers=(0,), kind="fits")]


def of_annotations(annotations: Iterable[Annotation]) -> list[str]:
    """Shares of labels of annotations that were not made here, or by an earlier version."""
    body = []
    for one in annotations:
        words = [esc(one.facts["backend"])] if one.facts.get("backend") else ["made elsewhere"]
        if one.page:
            words.append(f'<a href="{esc(one.page)}">details</a>')
        body += [f"<h3>{esc(one.name)}</h3>", f'<p class="soft">{" · ".join(words)}</p>', label_bar(one.counts)]
    return body


LOG: Kinds = {"model": str, "asked": int, "no_verdict": int}  # of an annotation's job


def warnings(found: Found) -> list[str]:
    """A sentence for each annotator with too few readable answers, as HTML."""
    return [
        f"<b>{f'Only {read:,}' if read else 'None'} of the {answers:,} answers of {esc(name)} could be read</b>, so "
        "they contribute almost nothing to the reward."
        for name, answers, read in [*_of_annotations(found), *_of_training(found.training)]
        if too_few(read, answers, "")
    ]


def _of_annotations(workdir: Found) -> list[tuple[str, int, int]]:
    """Annotator, number of answers, and number of readable answers of each annotation, unfinished ones included.

    Once a reward is learnt, only annotations that it was learnt from are listed.
    """
    found: dict[str, tuple[str, int, int]] = {}
    for file in sorted((workdir.path / "annotations").glob("*/shard-*.json")):
        if workdir.learnt and file.parent.name not in workdir.learnt.annotators:
            continue
        record = read_object(file) or {"log": {}}
        with checked(file):
            log = typed(record["log"], LOG)
        folder, asked = file.parent.name, log.get("asked", 0)
        _, answers, read = found.get(folder, ("", 0, 0))
        found[folder] = log.get("model") or folder, answers + asked, read + asked - log.get("no_verdict", 0)
    return list(found.values())


def _of_training(training: Training | None) -> list[tuple[str, int, int]]:
    """The same for the judge that was asked during training."""
    if not training:
        return []
    section, last = training.config.get("annotate") or {}, training.rows[-1]
    name = str(section.get("model") or section.get("backend") or "the judge")
    answers, read = (int(last.get(f"reward/{ONLINE}_{figure}", 0)) for figure in ("answers", "answers_read"))
    return [(name, answers, read)]
