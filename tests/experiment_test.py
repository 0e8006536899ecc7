"""Whose a workdir is: what decides the result may not change, everything else may; also where records are older."""

import dataclasses
import functools

import pytest
from config_attacks import WHOLE, attacks, config_with, refusal
from conftest import get_config
from ml_collections import ConfigDict

from motif_jax import experiment
from motif_jax.config.file import complete
from motif_jax.config.table import Number, Value, Whole, keys
from motif_jax.experiment import check_same_experiment, tables
from motif_jax.files import LAYOUT, LAYOUT_KEY, write_config, write_json
from motif_jax.stages import NAMES, find_stage
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
STAGES = {name: find_stage(name) for name in NAMES}


@dataclasses.dataclass
class Nothing:
    """A config of no values."""


def with_tables(reads, identity):
    stage = STAGES["train_policy"]
    changed = dataclasses.replace(stage, config=Nothing, identity=identity, unused=lambda config: ())
    vars(changed)["reads"] = reads
    return changed


@functools.cache
def others(key: str) -> list[object]:
    kind = keys(tables())[key].kind
    good = [value for value in attacks(kind) if not refusal(lambda value=value: kind.check("it", "--it", value))]
    *sections, name = key.split(".")
    inner = WHOLE
    for section in sections:
        inner = inner[section]
    return [value for value in good if value != inner[name]][-1:]


@pytest.mark.parametrize("stage", [name for name, stage in STAGES.items() if stage.identity])
def test_what_decides_may_not_change_and_what_does_not_may(stage, tmp_path):
    write_config(tmp_path, WHOLE)
    found = STAGES[stage]
    deciding = keys({section: found.reads[section] for section in found.identity})
    for key, value in keys(tables()).items():
        for other in others(key):
            config = config_with(key, other)
            said = refusal(lambda: check_same_experiment(config.to_dict(), tmp_path, tmp_path / "config.json", found))
            if key in deciding and value.decides and key not in found.unused(found.view(config.to_dict())):
                assert f"belongs to an experiment with {key} = " in said
                assert f"--config.{key}=" in said
            else:
                assert not said, f"{key}={other!r}"
    check_same_experiment(WHOLE, tmp_path, tmp_path / "none.json", STAGES[stage])


ADDED = Value(Number(0), "a number", 1.0, decides=True)


def test_a_value_that_is_added_locks_nobody_out(tmp_path):
    write_config(tmp_path, {"seed": 1, "policy": {"discount": 0.9}})
    seed, discount = Value(Whole(), "seed", 0, decides=True), Value(Number(0, 1), "discount", 0.5, decides=True)
    before = {"": {"seed": seed}, "policy": {"discount": discount}}
    now = before | {"policy": before["policy"] | {"added": ADDED}}
    config = ConfigDict({"seed": 1, "policy": {"discount": 0.9}})
    config.lock()
    complete(config, now)  # a config file of before
    assert config.policy.added == 1.0

    def check(config, tables=now):
        check_same_experiment(config.to_dict(), tmp_path, tmp_path / "config.json", with_tables(tables, ("", "policy")))

    check(config)
    config.policy.added = 2.0
    with pytest.raises(UserError, match=r"with policy.added = 1.0, not 2.0: .* --config.policy.added=1.0"):
        check(config)
    write_config(tmp_path, config.to_dict())
    with pytest.raises(UserError, match=r"policy.added = 2.0, a value that this version does not know"):  # an older one
        check(config, before)


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
