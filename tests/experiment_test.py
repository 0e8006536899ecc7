"""Whose a workdir is: what decides the result may not change, everything else may; also where records are older."""

import dataclasses
import functools
import json
import math
import os
from pathlib import Path

import pytest
from config_attacks import WHOLE, attacks, config_with, refusal
from conftest import ROOT, get_config

from motif_jax import experiment, stages
from motif_jax.config.file import complete, new_config
from motif_jax.config.table import Number, keys, tables_of, value
from motif_jax.experiment import check_same_experiment, tables
from motif_jax.files import LAYOUT, LAYOUT_KEY, write_config, write_json
from motif_jax.names import PLUGINS
from motif_jax.run import CONFIG
from motif_jax.stages import NAMES, Experiment, Stage, find_stage
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
STAGES = {name: find_stage(name) for name in NAMES}


@functools.cache
def others(key: str) -> list[object]:
    kind = keys(tables())[key].kind
    good = [value for value in attacks(kind) if not refusal(lambda value=value: kind.check("it", "--it", value))]
    *sections, name = key.split(".")
    inner = WHOLE
    for section in sections:
        inner = inner[section]
    return [value for value in good if value != inner[name]][-1:]


@pytest.mark.parametrize("stage", [name for name, stage in STAGES.items() if stage.decisive(stage.view(WHOLE))])
def test_what_decides_may_not_change_and_what_does_not_may(stage, tmp_path):
    write_config(tmp_path, WHOLE)
    found = STAGES[stage]
    for key, declared in keys(tables()).items():
        for other in others(key):
            view = found.view(config_with(key, other).to_dict())
            said = refusal(lambda view=view: check_same_experiment(found, view, tmp_path, tmp_path / CONFIG))
            decides = key in found.decisive(view)
            assert declared.decides or not decides
            assert bool(said) == decides, f"{key}={other!r}"
            assert not said or f"--config.{key} " in said
    check_same_experiment(found, found.view(WHOLE), tmp_path, tmp_path / "none.json")


DECISIVE_SECTIONS = {
    "collect": {"", "env", "collect"},
    "train_reward": {"", "reward"},
    "train_policy": {"", "env", "policy"},
    "train_language": {"", "transcripts", "language", "train_language"},
    "train_values": {"", "transcripts", "language", "train_values"},
    "evaluate": {"", "env"},
    "write_reward": {"", "env", "code_rewards"},
}


@pytest.mark.parametrize("stage", NAMES)
def test_stages_with_results_have_the_values_of_these_sections_as_their_identity(stage):
    found = STAGES[stage]
    view = found.view(WHOLE)
    sections = {key.rpartition(".")[0].partition(".")[0] for key in found.decisive(view)}
    of_plugins = {name for name, plugin in PLUGINS.by_name.items() if stage in plugin.decides}
    if stage in DECISIVE_SECTIONS:
        assert sections == DECISIVE_SECTIONS[stage] | of_plugins
    else:  # it keeps nothing, or says itself what decides it
        assert not (sections and found.folders(view, Path()))


def test_all_values_that_differ_are_told_in_one_table(launch_here, tmp_path):
    config = get_config("quickstart.py", "toy")
    write_config(tmp_path / "policy", config.to_dict())
    (tmp_path / "policy/checkpoints/1").mkdir(parents=True)
    changed = ("--config.policy.discount=0.5", "--config.seed=3", "--config.policy.sources=count:0.125")
    command = ("--config=configs/quickstart.py:toy", f"--workdir={tmp_path}", "--stage=train_policy", *changed)
    for more in ((), ("--dry_run",)):
        assert launch_here(*command, *more, status=2).stderr.splitlines() == [
            f"motif_jax: workdir {str(tmp_path)!r} belongs to another experiment, whose results these values decided:",
            "                            in the workdir  now",
            "  --config.policy.discount  0.99            0.5",
            "  --config.policy.sources   'learnt'        'count:0.125'",
            "  --config.seed             777             3",
            "Choose another --workdir, or give the values in the workdir.",
        ]
    assert launch_here(*command[:-3], "--dry_run").stdout.splitlines()[-1].startswith("train_policy: begun in ")


def test_records_of_the_last_release_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(4)))  # as when they were recorded
    recorded = json.loads((ROOT / "tests/fixtures/configs.json").read_text())["motif:score"]
    write_config(tmp_path, {key: eval(value, {"inf": math.inf}) for key, value in recorded.items()})
    for stage in STAGES.values():
        check_same_experiment(stage, stage.view(get_config().to_dict()), tmp_path, tmp_path / CONFIG)


@dataclasses.dataclass(frozen=True)
class Before:
    """A section."""

    discount: float = value(0.5, Number(0, 1), "discount", decides=True)


@dataclasses.dataclass(frozen=True)
class Now(Before):
    added: float = value(1.0, Number(0), "a number", decides=True)


@dataclasses.dataclass(frozen=True)
class ConfigBefore(Experiment):
    policy: Before = Before()


@dataclasses.dataclass(frozen=True)
class ConfigNow(Experiment):
    policy: Now = Now()


def test_a_value_that_is_added_locks_nobody_out(tmp_path):
    config = new_config(tables_of(ConfigBefore))
    write_config(tmp_path, config.to_dict())
    complete(config, tables_of(ConfigNow))  # a config file of before
    assert config.policy.added == 1.0

    def check(config, kind=ConfigNow):
        stage = dataclasses.replace(STAGES["train_policy"], config=kind)
        check_same_experiment(stage, stage.view(config.to_dict()), tmp_path, tmp_path / CONFIG)

    check(config)
    config.policy.added = 2.0
    with pytest.raises(UserError, match=r"\n +--config.policy.added +1.0 +2.0\n"):
        check(config)
    write_config(tmp_path, config.to_dict())
    check(config)
    with pytest.raises(
        UserError, match=r"policy.added +2.0 +not known to this version\n.*use the version that made it"
    ):
        check(new_config(tables_of(ConfigBefore)), ConfigBefore)  # an older one


def test_a_stage_that_lacks_a_field_cannot_be_declared():
    given = {one.name: getattr(STAGES["collect"], one.name) for one in dataclasses.fields(Stage)}
    for name in given.keys() - {"parts"}:
        with pytest.raises(TypeError, match=name):
            Stage(**{other: one for other, one in given.items() if other != name})


def test_a_stage_has_one_name(monkeypatch):
    for name, stage in STAGES.items():
        assert stage.name == name
    monkeypatch.setitem(stages.STAGES, "mine", "motif_jax.stages.collect:STAGE")
    with pytest.raises(UserError, match="which a plugin names 'mine', is the stage 'collect'"):
        find_stage("mine")


@pytest.mark.parametrize("found", ["unknown", LAYOUT - 1, LAYOUT + 1, "a"])
def test_another_layout_is_refused_and_left_as_it_is(tmp_path, found):
    config = get_config(argument="toy").to_dict()
    for file in (tmp_path / "config.json", tmp_path / "dataset/config.json"):
        write_json(file, config | ({} if found == "unknown" else {LAYOUT_KEY: found}))
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        for act in (experiment.run, experiment.dry_run):
            with pytest.raises(UserError, match=f"the layout of .* is {found}, and .* reads layout {LAYOUT}: use the"):
                act(config, tmp_path, ["collect"])
        assert {path: path.read_bytes() for path in before} == before
        file.unlink()
