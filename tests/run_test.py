import contextlib
import math
import struct
import sys
from dataclasses import dataclass, field, replace
from unittest.mock import Mock

import pytest
from tensorboardX.proto.event_pb2 import Event

from motif_jax.files import Held, to_plain
from motif_jax.pages.blocks import Paragraph, Span
from motif_jax.run import Facts, Judge, Lock, Run, from_plain
from motif_jax.structs import Meaning

pytestmark = pytest.mark.quick


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    steps: int
    loss: float
    figures: dict[str, Interval] = field(default_factory=dict)
    best: Interval | None = None
    sizes: tuple[int, ...] = ()
    names: list[str] = field(default_factory=list)


WHOLE = Summary(3, math.inf, {"return": Interval(-math.inf, 2.5)}, Interval(0.0, 1.0), (1, 2), ["a"])


@pytest.mark.parametrize("summary", [WHOLE, Summary(1, 0.25)])
def test_a_dataclass_is_read_as_it_was_written(tmp_path, summary):
    with Run(tmp_path).stage("train_values", "values") as stage:
        assert stage.read("summary", Summary) is None
        stage.write("summary", summary)
        assert stage.read("summary", Summary) == summary
    assert from_plain(Summary, to_plain(summary)) == summary
    assert math.isnan(from_plain(Summary, {"steps": 1, "loss": None, "a_value_of_later": 3}).loss)


def test_one_process_at_a_time_works_on_a_stage_and_another_may_read(tmp_path):
    with Run(tmp_path).stage("train_values", "values") as stage:
        stage.write("summary", WHOLE)
        with pytest.raises(Held, match="another run"), Run(tmp_path).stage("train_values", "values"):
            pass
        with Run(tmp_path).stage("train_values", "values", writes=False) as other:
            assert other.read("summary", Summary) == WHOLE
    with Run(tmp_path).stage("train_values", "values"):
        pass


@pytest.mark.parametrize(("held", "taken", "works"), [
    ({Lock.EXCLUSIVE}, {Lock.EXCLUSIVE}, False),
    ({Lock.SHARED}, {Lock.SHARED}, True),
    ({Lock.SHARED}, {Lock.SHARED, Lock.EXCLUSIVE}, False),
    ({Lock.EXCLUSIVE}, {Lock.NONE}, True),
    ({Lock.SHARED, Lock.NONE}, {Lock.EXCLUSIVE}, False),
])  # fmt: skip
def test_the_strictest_stage_decides_how_the_workdir_is_locked(tmp_path, held, taken, works):
    refused = contextlib.nullcontext() if works else pytest.raises(Held)
    with Run(tmp_path).lock(held), refused, Run(tmp_path).lock(taken):
        pass


def test_a_host_that_does_not_write_leaves_nothing(tmp_path):
    with Run(tmp_path).stage("train_values", "values", writes=False) as stage:
        stage.bind({"seed": 1})
        stage.write("summary", WHOLE)
        stage.section("Values", Paragraph("text"))
        stage.report()
        with stage.metrics("steps", -1) as metrics, stage.checkpoints(2) as checkpoints:
            assert metrics is checkpoints is None
    assert list(tmp_path.iterdir()) == []


def test_rows_after_the_checkpoint_are_removed_and_numbers_that_json_lacks_are_null(tmp_path):
    with Run(tmp_path).stage("train_values", "values") as stage:
        with stage.metrics("steps", -1) as metrics:
            for steps in (0, 5, 10):
                metrics.write(steps, {"loss": math.nan if steps == 5 else float(steps)})
        with open(stage.path / "metrics.jsonl", "a") as torn:
            torn.write('{"steps": 15, "lo')
        with stage.metrics("steps", 5, tensorboard=True) as metrics:
            metrics.write(6, {"loss": math.inf, "note": "text"})
        assert stage.rows() == [
            {"steps": 0, "loss": 0.0}, {"steps": 5, "loss": None}, {"steps": 6, "loss": None, "note": "text"},
        ]  # fmt: skip
        assert list((stage.path / "tensorboard").iterdir())


def test_a_run_of_weights_and_biases_is_resumed_under_its_id(tmp_path, monkeypatch):
    curves = Mock()
    monkeypatch.setitem(sys.modules, "wandb", curves)
    with Run(tmp_path).stage("train_values", "values") as stage:
        for start in (-1, 5):
            with stage.metrics("steps", start, wandb="project") as metrics:
                metrics.write(6, {"loss": 1.0, "note": "text"})
    first, again = (call.kwargs["id"] for call in curves.init.call_args_list)
    assert first == again
    curves.init.return_value.log.assert_called_with({"steps": 6, "loss": 1.0})


def test_curves_of_a_run_that_begins_again_hide_those_before_it(tmp_path):
    with Run(tmp_path).stage("train_values", "values") as stage:
        with stage.metrics("steps", 0, tensorboard=True) as metrics:
            metrics.write(5, {"loss": 1.0})
        (file,) = (stage.path / "tensorboard").iterdir()
    records, events = file.read_bytes(), []
    while records:  # length, checksum of it, event, checksum
        (length,) = struct.unpack("<Q", records[:8])
        events.append(Event.FromString(records[12 : 12 + length]))
        records = records[16 + length :]
    assert [event.step for event in events if event.HasField("session_log")] == [1]


def test_sections_replace_the_earlier_ones_of_their_stage_part_and_title(tmp_path):
    run = Run(tmp_path)
    with run.stage("train_values", "values") as stage:
        for number in "12":
            stage.section("Values", Paragraph(number))
            run.stage("train_values", "elsewhere").section("More", Paragraph("b"))
            stage.section("Less", *([Paragraph("first")] if number == "1" else ()))
            stage.report()
    with run.stage("train_language", "language") as stage:
        stage.section("Values", Paragraph("i"))
    parts = ("a", "a/b", "b", "c" * 250)  # as long as a name of an annotation may be
    for part in parts:
        with run.stage("annotate", "annotations/a") as stage:
            stage.section("Labels / all", Paragraph(part), part=part)
            stage.section("Labels - all", Paragraph("other"), part=part)
            stage.report(part=part)
    told = [(one.part, *one.blocks) for one in run.sections() if one.title == "Labels / all"]
    assert sorted(told) == [(part, Paragraph(part)) for part in parts]
    assert len(run.facts()) == len(parts) + 1
    others = [one for one in run.sections() if not one.part]
    assert sorted((one.stage, one.title, *(block.of for block in one.blocks)) for one in others) == [
        ("train_language", "Values", "i"), ("train_values", "More", "b"), ("train_values", "Values", "2"),
    ]  # fmt: skip


def test_what_a_stage_says_comes_back(tmp_path):
    said = Facts(
        title=("Preferences of ", Span("A")), lead=["one", (" ", Span("two"))], beside=Paragraph("p"), task="score",
        judge=Judge(("A", "B"), True, 3), seconds=2.5, machine={"cores": 2, "versions": {"jax": "1"}},
        config={"env": {"sizes": [1, 2]}}, meanings=(Meaning("depth", "deepest"),),
    )  # fmt: skip
    Run(tmp_path).stage("annotate", "annotations").report(said, part="a")
    ((key, read),) = Run(tmp_path).facts().items()
    assert key == ("annotate", "a")
    assert read == replace(said, lead=("one", (" ", Span("two"))), config={"env": {"sizes": (1, 2)}})
    assert (read.judge.liked, Judge(("A",)).liked, Judge(()).liked) == ("what A and B like", "what A likes", "")
