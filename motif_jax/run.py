"""A workdir and its stages: lock, resuming, typed files, metrics, checkpoints, sections of the report.

    with Run(workdir).stage("train_values", "values") as stage:  # locks workdir/values
        stage.bind(config)  # values/config.json: whose results these are
        checkpoints = stage.checkpoints(keep=2)
        stage.metrics("steps", start).write(steps, row)
        stage.write("summary", summary)  # values/summary.json; `stage.read("summary", Summary)` reads it
        stage.section("Learning from transcripts", *blocks)  # writes a section of the report
        stage.report(Facts(title="A language model"))  # what the report's first screen says

Only kills leave traces here: files are written whole, and the rows of metrics after the last checkpoint are removed. Of
several hosts, only the first writes; on the others the same calls write nothing. Does not load JAX before it is needed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
import secrets
import time
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote

from motif_jax import files
from motif_jax.config.renamed import current_values
from motif_jax.config.table import flatten
from motif_jax.pages.blocks import KINDS, Block, Span, Text, from_data, joined, to_data
from motif_jax.structs import Meaning, UserError

if TYPE_CHECKING:
    from motif_jax.devices.checkpoints import Checkpoints

CONFIG, LOCK, METRICS = "config.json", ".lock", "metrics.jsonl"
SECTIONS = "parts"  # directory of the workdir: what the report shows
LONGEST = files.LONGEST - len(".json")
Value = TypeVar("Value")


def read_record(file: Path) -> dict[str, Any]:
    """The values in a config.json by their names; raises UserError for another layout."""
    content = files.read_json(file)
    files.check_layout(content, file.parent)
    return current_values(flatten(content))


# ---- a workdir


class Lock(enum.Enum):
    """How a stage locks the workdir."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"  # jobs that divide the stage, or several hosts
    NONE = "none"  # it only reads other stages' files, also while they are written


class Section(NamedTuple):
    """A part of the report, as its stage wrote it."""

    stage: str
    part: str  # "", or which of the stage's results
    title: str
    after: str  # the title that it stands behind, for one that the report does not know
    blocks: Sequence[Block]


class Judge(NamedTuple):
    """Who preferred what the reward was learnt from."""

    names: tuple[str, ...]
    plural: bool = False  # whether one of them is several, such as rules
    pairs: int = 0  # that it judged

    @property
    def words(self) -> Text:
        return joined(map(Span, self.names), " and ")

    @property
    def liked(self) -> str:
        """What it prefers, for titles: "what the rules like"; "" without a judge."""
        many = self.plural or len(self.names) > 1
        return f"what {' and '.join(self.names)} {'like' if many else 'likes'}" if self.names else ""


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a stage says for the first screen of the report, and for the tables of several runs.

    None: nothing is said, and what an earlier stage has said stands.
    """

    title: Text | None = None
    lead: Text | None = None  # sentences
    beside: Block | None = None  # a chart beside the sentences
    task: str | None = None
    goal: str | None = None
    judge: Judge | None = None
    agreement: Text | None = None  # of the reward with its labels, a cell
    likes: Block | None = None  # the reward's best captions
    steps: int | None = None  # of training
    seconds: float | None = None
    made: str | None = None  # date
    machine: Mapping[str, Any] | None = None  # `system.machine.describe`
    config: Mapping[str, Any] | None = None
    meanings: tuple[Meaning, ...] | None = None  # of the world's figures


KINDS |= {"Judge": Judge, "Section": Section}


class Run:
    """An experiment's directory."""

    def __init__(self, path: Path):
        self.path = path

    def lock(self, modes: Iterable[Lock]) -> contextlib.AbstractContextManager[Any]:
        """Locks the directory as the strictest of these modes asks."""
        modes = {*modes}
        if modes == {Lock.NONE}:
            return contextlib.nullcontext()
        return files.take(self.path / LOCK, shared=Lock.EXCLUSIVE not in modes)

    def stage(self, name: str, folder: str, writes: bool = True) -> StageRun:
        """The stage's part of the directory. `writes`: whether this process writes, as one of several hosts does."""
        return StageRun(self.path, name, folder, writes)

    def sections(self) -> list[Section]:
        return [from_data(told) for _, told in self._each(f"{SECTIONS}/*/*.json")]

    def facts(self) -> dict[tuple[str, str], Facts]:
        """What each part of each stage says, by the stage's name and the part's."""
        every = (told for _, told in self._each(f"{SECTIONS}/*.json"))
        return {(told["stage"], told["part"]): Facts(**from_data(told["facts"])) for told in every}

    def read_each(self, pattern: str, kind: type[Value]) -> dict[str, Value]:
        """The values of this type in the files of a pattern, by the names of the files' directories."""
        return {file.parent.name: from_plain(kind, value) for file, value in self._each(pattern)}

    def _each(self, pattern: str) -> Iterator[tuple[Path, dict[str, Any]]]:
        """The objects in the files of a pattern, except those that a stage at work has just removed."""
        for file in sorted(self.path.glob(pattern)):
            with contextlib.suppress(FileNotFoundError):
                yield file, files.read_json(file)


class StageRun:
    """A stage at work in its directory; a context manager, which locks the directory."""

    def __init__(self, workdir: Path, name: str, folder: str, writes: bool):
        self.workdir, self.name, self.path, self.writes = workdir, name, workdir / folder, writes
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> StageRun:
        if self.writes:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = files.take(self.path / LOCK)
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()

    def bind(self, config: Any) -> None:
        if self.writes:
            files.write_config(self.path, config)

    def read(self, name: str, kind: type[Value]) -> Value | None:
        file = self.path / f"{name}.json"
        return from_plain(kind, files.read_json(file)) if file.exists() else None

    def write(self, name: str, value: Any) -> None:
        if self.writes:
            files.write_json(self.path / f"{name}.json", files.to_plain(value))

    def metrics(
        self, counter: str, start: int, tensorboard: bool = False, wandb: str = "", config: Any = None,
        section: str = "",
    ) -> contextlib.AbstractContextManager[Metrics | None]:  # fmt: skip
        """Rows of metrics over `counter`; None where nothing is written.

        `start`: the counter where training resumes, of the last row that stays; -1: it is new. `section`: of the
        config, if it is not named after the stage.
        """
        if not self.writes:
            return contextlib.nullcontext()
        files.keep_lines(self.path / METRICS, counter, start)
        flag = f"--config.{section or self.name}.wandb"
        return contextlib.closing(Metrics(self.path, counter, start, tensorboard, wandb, files.to_plain(config), flag))

    def rows(self) -> list[dict[str, Any]]:
        return [*files.read_lines(self.path / METRICS)] if (self.path / METRICS).exists() else []

    def checkpoints(self, keep: int) -> contextlib.AbstractContextManager[Checkpoints | None]:
        """The checkpoints, whose last one is whole at the end of the context; None where nothing is written."""
        from motif_jax.devices.checkpoints import Checkpoints

        if not self.writes:
            return contextlib.nullcontext()
        return contextlib.closing(Checkpoints(self.path / "checkpoints", keep))

    def section(self, title: str, *blocks: Block, part: str = "", after: str = "") -> None:
        """Writes a section of the report: blocks under a title that several stages may share.

        They replace what the stage has written under the title, about the same `part` of its results; without blocks,
        nothing of it stays. Each section is a file of its own, so it does not matter who of the stage writes it, and
        when. `after`: the title that one of a plugin stands behind.
        """
        if not self.writes:
            return
        name = files.short_name(quote(title, safe=" "), LONGEST)
        file = self.workdir / SECTIONS / self._told(part) / f"{name}.json"
        if blocks:
            files.write_whole(file, files.json_line(to_data(Section(self.name, part, title, after, blocks))).encode())
        else:
            file.unlink(missing_ok=True)

    def report(self, facts: Facts = Facts(), part: str = "") -> None:
        """Writes what the stage says beside its sections, for this `part`; before the file that marks a result."""
        if self.writes:
            said = {one.name: to_data(getattr(facts, one.name)) for one in dataclasses.fields(facts)}
            file = self.workdir / SECTIONS / f"{self._told(part)}.json"
            files.write_json(file, {"stage": self.name, "part": part, "facts": said})

    def _told(self, part: str) -> str:
        return files.short_name(quote(f"{self.name}-{part}" if part else self.name, safe=" "), LONGEST)


def from_plain(kind: Any, tree: Any) -> Any:
    """The value of this type that `files.to_plain` turned into JSON."""
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        return kind(**{name: from_plain(hints[name], tree[name]) for name in hints.keys() & tree.keys()})
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (inner,) = [one for one in of if one is not type(None)]
        return None if tree is None else from_plain(inner, tree)
    if origin is tuple:
        kinds = of[:1] * len(tree) if of[1:] == (...,) else of
        return tuple(from_plain(one, item) for one, item in zip(kinds, tree, strict=True))
    if origin is list:
        return [from_plain(of[0], item) for item in tree]
    if origin in (dict, Mapping):
        return {name: from_plain(of[1], item) for name, item in tree.items()}
    if kind is float:
        return float("nan") if tree is None else float(tree)  # "inf"
    return tree


def date_of(seconds: float) -> str:
    """A time of `time.time` or of a file's status, in UTC."""
    return f"{datetime.fromtimestamp(int(seconds), UTC):%d %B %Y, %H:%M} UTC".lstrip("0")


# ---- metrics


class Metrics:
    """Rows of metrics over a counter: JSON lines, and optionally TensorBoard and Weights & Biases."""

    def __init__(self, folder: Path, counter: str, start: int, tensorboard: bool, wandb: str, config: Any, flag: str):
        """Opens the files, and appends to those of earlier runs.

        `start`: the counter where training resumes; TensorBoard hides later points of earlier runs. `wandb`: a project
        of Weights & Biases, or ""; `flag`: its name in the config.
        """
        self._counter, self._lines = counter, files.LineFile(folder / METRICS)
        self._curves = None
        if tensorboard:
            # SummaryWriter would write in a thread of its own, whose errors would go unnoticed.
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto.event_pb2 import Event, SessionLog

            (folder / "tensorboard").mkdir(exist_ok=True)
            self._curves = EventsWriter(str(folder / "tensorboard/events"))
            session = SessionLog(status=SessionLog.START)
            self._curves.write_event(Event(step=max(start, 0) + 1, session_log=session))
        self._wandb = None
        if wandb:
            try:
                import wandb as library
            except ImportError:
                raise UserError(f"wandb is not installed: pip install wandb ({flag})") from None
            name, file = str(folder.absolute().parent), folder / "wandb.json"
            run = files.read_json(file) if file.exists() else None
            if run is None:
                run = {"id": secrets.token_hex(8)}
                files.write_json(file, run)
            self._wandb = library.init(project=wandb, id=run["id"], name=name, resume="allow", config=config)

    def write(self, count: int, row: Mapping[str, Any]) -> None:
        """Writes one row of metrics by name, where NaN and infinity become null; curves get only its numbers."""
        self._lines.add([{self._counter: count, **row}])
        numbers = {name: one for name, one in row.items() if isinstance(one, int | float) and math.isfinite(one)}
        if self._curves:
            from tensorboardX.proto.event_pb2 import Event
            from tensorboardX.summary import scalar

            for name, value in numbers.items():
                self._curves.write_event(Event(step=count, wall_time=time.time(), summary=scalar(name, value)))
            self._curves.flush()
        if self._wandb:
            self._wandb.log(numbers | {self._counter: count})

    def close(self) -> None:
        self._lines.close()
        if self._curves:
            self._curves.close()
        if self._wandb:
            self._wandb.finish()
