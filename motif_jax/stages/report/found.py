"""Reads and checks the artefacts of a workdir for the report.

A damaged file ends the report with a one-sentence error. All checks are here, so the modules that show the parts can
rely on the form of their data.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.envs.worlds import title
from motif_jax.pages.formats import Interval, count, number
from motif_jax.preferences.folders import annotation_folder
from motif_jax.preferences.merging import NOT_ASKED, count_asked
from motif_jax.preferences.store import PairDataset, Preference
from motif_jax.stages.evaluate.replays import file_of
from motif_jax.stages.evaluate.summary import SUMMARY
from motif_jax.stages.report import parts
from motif_jax.stages.report.figures import CURVES
from motif_jax.stages.report.parts import Annotation, EvaluatedPlayer, Facts, Found, Learnt, Pairs, Training
from motif_jax.structs import UserError
from motif_jax.system.files import read_json, read_lines

Kinds = Mapping[str, Callable[[Any], Any]]
DATASET: Kinds = {
    "collector": str, "task": str, "episodes": count, "steps": count, "distinct_captions": count,
    "share_without_message": number,
}  # fmt: skip
COLLECTING: Kinds = {"machine": str, "steps_per_s": number}
MACHINE: Kinds = {
    "processor": str, "cores": count, "memory_gib": count, "system": str, "python": str, "device": str,
    "devices": count, "commit": str,
}  # fmt: skip
LABELS: Kinds = {"backend": str, "goal": str}
JOB: Kinds = {"model": str, "seconds": number}
EPOCH: Kinds = {
    "epoch": count, "loss": number, "accuracy": number, "sided": count, "unseen_accuracy": number,
    "unseen_sided": count, "score_accuracy": number, "train_loss": number, "train_accuracy": number, "questions": count,
    "accuracy_low": number, "accuracy_high": number,
}  # fmt: skip
VALUED: Kinds = {"reward": number, "caption": str, "times": count}
SETTINGS: Kinds = {
    "algorithm": str, "network": str, "extrinsic_coefficient": number, "intrinsic_coefficient": number,
    "threshold_quantile": number, "reward_dir": str, "sources": str, "online": dict,
    "options": str, "controller": str, "controller_chooses": str,
}  # fmt: skip
DONE: Kinds = {"env_steps": count, "seconds": number, "episodes": count}
KEPT = re.compile(  # metrics of training that are read; the file may be large
    r"env_steps|seconds|memory_mib|option/.*|reward/\w+_share|reward/online_\w+|(episode|time)/.*|"
    + "|".join(re.escape(metric) for metric, *_ in CURVES)
)


def read_workdir(path: Path, home: Path) -> Found:
    """Reads a workdir; links to its pages are relative to `home`, the report's directory."""
    pairs = find_pairs(path)
    annotations = find_annotations(path, home, pairs.dataset) if pairs else []
    learnt, training = find_learnt(path, home), find_training(path)
    machine = next((part.machine for part in (training, learnt, pairs) if part and part.machine), {})
    offline: Facts = {}
    for folder in ("language", "values"):  # of the later stage, if it has begun
        offline = read_object(path / folder / "config.json") or offline
        machine = machine or machine_of(read_object(path / folder / "summary.json") or {})
    name = path.resolve().name
    players = find_players(path)
    others = {one.protocol: [other for other in players if other.protocol == one.protocol] for one in players}
    own = others.pop("", [])
    return Found(name, path, pairs, annotations, learnt, training, own, machine, others, offline)


def find_pairs(path: Path) -> Pairs | None:
    """The dataset of a workdir; None if it is not finished."""
    file = path / "dataset" / "dataset.json"
    if (facts := read_object(file)) is None:
        return None
    ran = read_object(path / "dataset" / "run.json") or {}
    with checked(path / "dataset" / "run.json"):
        ran = typed(ran, COLLECTING)
    with checked(file):
        machine: Facts = {"processor": ran["machine"]} if "machine" in ran else {}
        machine["versions"] = versions_of(facts)
        facts = typed(facts, DATASET)
    dataset = PairDataset(path / "dataset")
    return Pairs(facts, ran, dataset, machine, date_of(file))


def find_annotations(path: Path, home: Path, dataset: PairDataset) -> list[Annotation]:
    """All annotations of the dataset."""
    found = []
    for name in dataset.preference_names():
        counts = np.bincount(np.asarray(dataset.preference(name)), minlength=len(Preference))
        file = annotation_folder(dataset.path, name) / "merged.json"
        record = read_object(file) or {"facts": {}, "shards": {}}
        with checked(file):
            facts, logs = typed(record["facts"], LABELS), [typed(log, JOB) for log in record["shards"].values()]
            not_asked = int(record.get(NOT_ASKED, 0))
        page = path / "annotations" / f"{name}.html"
        named = {kind.name.lower(): int(counts[kind]) for kind in Preference}
        found.append(Annotation(name, count_asked(named, not_asked), facts, logs, link(page, home)))
    return found


def find_learnt(path: Path, home: Path) -> Learnt | None:
    """The learnt reward of a workdir; None if it is not finished."""
    file = path / "reward" / "statistics.json"
    if (facts := read_object(file)) is None:
        return None
    with checked(file):
        quantiles = (facts.get("statistics") or {}).get("quantiles") or {}
        learnt = Learnt(
            {str(name): number(share) for name, share in facts["annotators"].items()},
            count(facts["epoch"]),
            count(facts.get("parameters") or 0),
            [{"loss": math.nan} | typed(row, EPOCH) for row in facts["history"]],
            {number(level): number(value) for level, value in sorted(quantiles.items())},
            find_captions(path / "reward" / "captions.json"),
            machine_of(facts),
            link(path / "reward" / "reward.html", home),
            date_of(file),
        )
        if any("epoch" not in row for row in learnt.history):
            raise ValueError("an epoch without its number")
        return learnt


def find_captions(file: Path) -> Facts | None:
    """Captions with their rewards; None if the file does not exist, as for rewards that read more than messages."""
    if (facts := read_object(file)) is None:
        return None
    with checked(file):
        found: Facts = {key: [whole(row, VALUED) for row in facts[key]] for key in ("most", "least", "common")}
        found["captions"] = count(facts["captions"])
        found["anchored"] = facts.get("anchored") is True
        found["heights"] = [count(height) for height in facts["heights"]]
        found["edges"] = [number(edge) for edge in facts["edges"]]
        found["thresholds"] = {str(number(level)): number(value) for level, value in facts["thresholds"].items()}
        if len(found["edges"]) != len(found["heights"]) + 1 or not found["edges"][0] < found["edges"][-1]:
            raise ValueError("edges and heights do not fit")
        return found


def find_training(path: Path) -> Training | None:
    """The policy's training, finished or not; None before its first row."""
    file = path / "policy" / "metrics.jsonl"
    rows = read_rows(file)
    if not rows:
        return None
    with checked(file):
        if any("env_steps" not in row or "seconds" not in row for row in rows):
            raise ValueError("a row without env_steps or seconds")
    config = read_object(path / "policy" / "config.json") or {}
    with checked(path / "policy" / "config.json"):
        settings = typed(config.get("policy", {}), SETTINGS)
        task = title(config["env"]) if config.get("env") else ""
    summary = read_object(path / "policy" / "summary.json") or {}
    with checked(path / "policy" / "summary.json"):
        done = whole(typed(summary, DONE), DONE) if summary else {}
        return Training(rows, done, settings, task, config, machine_of(summary), date_of(file))


def find_players(path: Path) -> list[EvaluatedPlayer]:
    """All evaluated players: this workdir's policy first, random play last."""
    found = []
    for file in sorted((path / "evaluate").glob(f"*/{SUMMARY}")):
        if (facts := read_object(file)) is None:
            continue  # another job is evaluating it again
        with checked(file):
            figures = {name: interval_of(value) for name, value in facts["figures"].items()}
            chosen = list((facts.get("replays") or {}).values())
            files = {chosen.index(episode): file_of(file.parent, episode) for episode in chosen}
            returns = intervals_of(facts.get("returns") or {})
            terms = {str(name): intervals_of(of_terms) for name, of_terms in (facts.get("terms") or {}).items()}
            found.append(EvaluatedPlayer(
                file.parent.name, str(facts["path"]), count(facts["step"]), bool(facts["greedy"]),
                count(facts["episodes"]), str(facts["task"]), facts.get("reward"), figures,
                intervals_of(facts.get("did") or {}),
                {str(end): count(times) for end, times in (facts.get("ends") or {}).items()},
                [kept for _, kept in sorted(files.items()) if kept.is_file()],
                returns, terms, dict(facts.get("sources") or {}),
                frozenset(map(str, facts.get("aims") or ())), str(facts.get("protocol") or ""),
                parts.HowDecoded.of(facts.get("decoding")), str(facts.get("recipe") or ""),
                bool(facts.get("repeatable", True)), str(facts.get("option") or ""),
            ))  # fmt: skip
    return sorted(found, key=_place)


def _place(one: EvaluatedPlayer) -> tuple[Any, ...]:
    scripted, of_return = one.path == "", one.figures.get("return")
    best = -of_return.mean if one.decoding and of_return else 0.0
    is_random = scripted and one.name.startswith("random")
    return one.path != ".", is_random, scripted, -one.step, best, bool(one.option), one.greedy


def intervals_of(values: Facts) -> dict[str, Interval]:
    """Intervals by name, without unknown ones."""
    found = {str(name): interval_of(value) for name, value in values.items()}
    return {name: value for name, value in found.items() if value}


def interval_of(value: Facts | None) -> Interval | None:
    """A mean with its interval, of which the ends and n may be None; None for None."""
    if value is None:
        return None
    low, high = (None if value.get(end) is None else number(value[end]) for end in ("low", "high"))
    median = None if value.get("median") is None else number(value["median"])
    return Interval(number(value["mean"]), low, high, median, None if value.get("n") is None else int(value["n"]))


def machine_of(facts: Facts) -> Facts:
    """The machine on which an artefact was made; empty if the artefact does not name it."""
    machine = facts.get("machine")
    return typed(machine, MACHINE) | {"versions": versions_of(machine)} if machine else {}


def versions_of(facts: Facts) -> dict[str, str]:
    """The versions of the libraries, by name."""
    return {str(name): str(version) for name, version in (facts.get("versions") or {}).items()}


def typed(facts: Facts, kinds: Kinds) -> Facts:
    """The known facts among those that `kinds` names, each converted to its kind."""
    return {key: kind(facts[key]) for key, kind in kinds.items() if facts.get(key) is not None}


def whole(facts: Facts, kinds: Kinds) -> Facts:
    """All facts that `kinds` names, each converted to its kind; KeyError if one is missing."""
    return {key: kind(facts[key]) for key, kind in kinds.items()}


@contextlib.contextmanager
def checked(file: Path) -> Iterator[None]:
    """Turns an error in the content of `file` into a UserError of one sentence, which ends the report."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"{str(file)!r} is damaged ({what}): remove it, or make it again (--workdir)") from error


def read_object(file: Path) -> Facts | None:
    """The content of a JSON file; None if the file does not exist."""
    with checked(file):
        try:
            return read_json(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"cannot read {str(file)!r}: {error.strerror} (--workdir)") from error


def read_rows(file: Path, every: bool = False) -> list[dict[str, float]]:
    """The numbers in the lines of a file whose names match KEPT, or `every` number.

    An incomplete last line is left out, as it may still be written.
    """
    rows: list[dict[str, float]] = []
    with checked(file):
        try:
            for row in read_lines(file, appended=True):
                known = {name: value for name, value in row.items() if value is not None}
                rows.append({name: number(known[name]) for name in known if every or KEPT.fullmatch(name)})
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"cannot read {str(file)!r}: {error.strerror} (--workdir)") from error
    return rows


def date_of(file: Path) -> str:
    """The time at which a file was last written, in UTC; "" if another job has just removed it."""
    try:
        written = int(file.stat().st_mtime)
    except FileNotFoundError:
        return ""
    return f"{datetime.fromtimestamp(written, UTC):%d %B %Y, %H:%M} UTC".lstrip("0")


def link(page: Path, home: Path) -> str:
    """The path of a page relative to the report's directory; "" if the page does not exist."""
    return Path(os.path.relpath(page.resolve(), home.resolve())).as_posix() if page.is_file() else ""
