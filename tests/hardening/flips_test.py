"""Single bits of every file of a finished workdir are flipped: what is then read is what was written, or nothing.

Hundreds of flips, at random places that are the same every time, read by the very functions with which the stages, the
report and the player read. Which of them read a file is found by Python's audit events, so that no list of files can be
incomplete; a new file that nobody reads must be named in NOT_READ, with the reason.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import os
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import jax
import numpy as np
import pytest
from conftest import get_config
from damages import ANNOTATION, ORBAX, SMALL, make_whole, run

from motif_jax import experiment
from motif_jax.devices.checkpoints import reading
from motif_jax.episodes.playback import read_tracks
from motif_jax.preferences.shards import Part, read_labels, read_record
from motif_jax.preferences.store import PairDataset
from motif_jax.replays.replay import load_replay
from motif_jax.stages import annotate, collect, evaluate, report, train_policy, train_reward
from motif_jax.stages.evaluate.summary import read_json, read_rows
from motif_jax.stages.report.data import of_pairs
from motif_jax.stages.report.found import read_workdir
from motif_jax.stages.train_reward.setup import load_data
from motif_jax.structs import UserError
from motif_jax.system.metrics import drop_rows_after

pytestmark = pytest.mark.filterwarnings(ORBAX)
FLIPS = 8  # of each file
FLIPS_OF_CHECKPOINTS = 1  # of each of their many files: orbax is slow to open; checkpoints_corruption_test.py has more
STAGES = {"collect": collect, "annotate": annotate, "train_reward": train_reward, "train_policy": train_policy,
          "evaluate": evaluate, "report": report}  # fmt: skip
PLAYER = {"evaluate__policy": "random", "evaluate__beside": "", "evaluate__episodes": 12, "evaluate__num_workers": 0}
NOT_READ = {  # patterns of names, and why no reader needs to notice a change
    "annotations/*/config.json": "the record of the last job, for people",
    "reward/metrics.jsonl": "for people and their plots; the report reads the history in statistics.json",
    "*.html": "pages for people",
    "*/.motif_jax.json": "the marker of a directory; a damaged one is no marker, so nothing is removed",
    "*.lock": "locks: what is in them is only shown",
}
CHECKPOINTS = "*/checkpoints/*"  # read by orbax, which no audit event tells of


class SetAside(Exception):
    """The damage was noticed, and what is damaged will be made anew."""


@pytest.fixture(scope="module")
def workdir(tmp_path_factory) -> Path:
    """A finished workdir, of this module's own."""
    workdir = shutil.copytree(make_whole(), tmp_path_factory.mktemp("flips") / "run")
    run(workdir, "evaluate", **PLAYER)
    run(workdir, "report")
    return workdir


# ---- the readers


@functools.cache
def settings():
    config = get_config("quickstart.py", "toy")
    config.update_from_flattened_dict(SMALL | {name.replace("__", "."): value for name, value in PLAYER.items()})
    return config


def complete(stage: str) -> Callable[[Path], object]:
    def read(workdir: Path) -> None:
        if not STAGES[stage].is_complete(settings(), workdir):
            raise SetAside(f"{stage} is not complete any more")

    return read


def identity(workdir: Path) -> None:
    experiment.check_start(settings(), workdir, [])
    for stage in STAGES.values():
        for made in stage.STAGE.artefacts(workdir):
            experiment.check_same_experiment(settings(), workdir, made / "config.json", stage.STAGE)


def shown(workdir: Path) -> object:
    found = read_workdir(workdir, workdir / "report")
    return found._replace(pairs=found.pairs._replace(dataset=None)), of_pairs(found.pairs)


def learnt_from(workdir: Path) -> object:
    data = load_data(settings(), workdir)
    return data.ids, data.texts, data.target, data.sided, data.fingerprint, data.dataset.info["score"]


def whole_arrays(workdir: Path) -> object:
    dataset = PairDataset(workdir / "dataset")
    arrays = {f"data/{name}": array for name, array in dataset.data.items()}
    arrays |= {f"info/{name}": array for name, array in dataset.info.items()}
    dataset.check_whole(arrays)
    return {name: np.asarray(array) for name, array in arrays.items()}


def shard(workdir: Path) -> object:
    folder, part = workdir / "annotations" / ANNOTATION, Part(0, 1)
    record = read_record(folder / f"{part.stem}.json")
    return record, read_labels(folder, part, SMALL["collect.num_pairs"], record)


def kept_rows(workdir: Path) -> object:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(workdir / "policy/metrics.jsonl", folder))
        drop_rows_after(copy, 10**9)
        if len(list(copy.parent.iterdir())) > 1:
            raise SetAside("the damaged file lies beside it")
        rows = [json.loads(line) for line in copy.read_text().splitlines()]
        return [{name: value for name, value in row.items() if name != "checksum"} for row in rows]


def played(workdir: Path) -> object:
    folder = workdir / "evaluate/random"
    replays = [load_replay(file, "--flag") for file in sorted((folder / "replays").iterdir())]
    about = [read_json(folder / f"{name}.json") for name in ("player", "summary", "config")]
    return read_rows(folder / "episodes.jsonl"), read_tracks(folder / "tracks.npz"), replays, about


def checkpoints(name: str) -> Callable[[Path], object]:
    def read(workdir: Path) -> object:
        with reading(workdir / name / "checkpoints") as found:
            last = found.steps()[-1]
            step, state, facts = found.readable("last")
        if step != last:
            raise SetAside("the checkpoint before it is taken")
        return [np.asarray(leaf) for leaf in jax.tree.leaves(state)], facts

    return read


READERS: dict[str, Callable[[Path], object]] = {
    **{f"is_complete of {stage}": complete(stage) for stage in STAGES}, "identity": identity, "report": shown,
    "training data": learnt_from, "arrays": whole_arrays, "shard": shard, "metrics": kept_rows, "episodes": played,
    "reward/checkpoints": checkpoints("reward"), "policy/checkpoints": checkpoints("policy"),
}  # fmt: skip


def content(value: object) -> object:
    """The same value in types that compare bit by bit."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: content(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [content(item) for item in value]
    return repr(value)


# ---- the flips

OPENED: list[str] = []
HARMLESS = ("same", "set aside", "refused")


@contextlib.contextmanager
def opened() -> Iterator[list[str]]:
    """The names of all files that Python opens in the meantime."""
    if not OPENED:
        sys.addaudithook(lambda event, arguments: OPENED.append(str(arguments[0])) if event == "open" else None)
    del OPENED[:]
    OPENED.append("")
    yield OPENED


def flip(file: Path, bit: int) -> None:
    """As a disk does it: nothing but this bit is another one."""
    data, status = bytearray(file.read_bytes()), file.stat()
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def attempt(read: Callable[[Path], object], workdir: Path, good: object) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "same" if content(read(workdir)) == good else "other content"
        except UserError as error:
            return "refused" if len(str(error).splitlines()) == 1 else f"not one sentence: {error}"
        except SetAside:
            return "set aside"


def restore(workdir: Path, pristine: Path, stamps: dict[str, tuple[int, ...]]) -> None:
    """Undoes what readers have mended: all that they write is written whole, and so is another file than before."""
    for name in {name for name, _ in stamps_of(workdir).items() ^ stamps.items()}:
        (workdir / name).unlink(missing_ok=True)
        if name in stamps:
            shutil.copy2(pristine / name, workdir / name)
            stamps[name] = stamp_of(os.stat(workdir / name))


def stamp_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mtime_ns, status.st_ino, status.st_size


def stamps_of(workdir: Path) -> dict[str, tuple[int, ...]]:
    """Of all files, by their names within the workdir."""
    start = len(str(workdir)) + 1
    files = (os.path.join(folder, name) for folder, _, names in os.walk(workdir) for name in names)
    return {file[start:]: stamp_of(os.stat(file)) for file in files}


@pytest.mark.slow
def test_no_flipped_bit_of_any_file_is_read_as_other_content(workdir, tmp_path):
    pristine = shutil.copytree(workdir, tmp_path / "run")
    stamps = stamps_of(workdir)

    # ---- who reads what
    good, readers = {}, collections.defaultdict(set)
    for name, read in READERS.items():
        with opened() as names:
            good[name] = content(read(workdir))
        for path in {*names}:
            if path.startswith(f"{workdir}{os.sep}"):
                readers[str(Path(path).relative_to(workdir))].add(name)
        restore(workdir, pristine, stamps)
    for file in sorted(stamps):
        if fnmatch(file, CHECKPOINTS):
            readers[file] = {f"{file.partition('/')[0]}/checkpoints"}
        excused = any(fnmatch(file, pattern) for pattern in NOT_READ)
        assert readers[file] or excused, f"nobody reads {file}: is that so? (NOT_READ)"

    # ---- flip
    counts: collections.Counter[str] = collections.Counter()
    wrong = []
    for file, names in sorted(readers.items()):
        rng, data = random.Random(file), (pristine / file).read_bytes() if file in stamps else b""
        for _ in range(FLIPS_OF_CHECKPOINTS if fnmatch(file, CHECKPOINTS) else FLIPS) if data and names else ():
            flip(workdir / file, bit := rng.randrange(8 * len(data)))
            found = {name: attempt(READERS[name], workdir, good[name]) for name in sorted(names)}
            if unnoticed := {name: kind for name, kind in found.items() if kind not in HARMLESS}:
                wrong.append((file, bit, unnoticed))
            counts["read as other content" if unnoticed else max(found.values(), key=HARMLESS.index)] += 1
            if (workdir / file).is_file():
                flip(workdir / file, bit)  # back
            restore(workdir, pristine, stamps)
    told = f"{counts.total():,} flips in {len(stamps):,} files: {dict(counts)}"
    print(told)
    assert not wrong, f"{told}; {wrong[:5]}"
    assert counts.total() > 200
    assert counts["refused"] + counts["set aside"] > counts["same"]
