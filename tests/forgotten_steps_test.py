"""Of each change that CONTRIBUTING describes, one step left out is told before training, and not by a result."""

import ast
import sys

import jax.numpy as jnp
import pytest
from conftest import check_stage, get_config, refusal
from import_order_test import MODULES, nodes_of

from motif_jax import names
from motif_jax.annotation.backends import CaptionBackend
from motif_jax.annotation.prompts import VERSIONS
from motif_jax.config.table import keys
from motif_jax.envs.texts import read_texts
from motif_jax.experiment import tables
from motif_jax.names import import_named
from motif_jax.networks.kinds import BY_SPECS, FIXED
from motif_jax.rewards.online.kinds import NetworkKind, OnlineKind
from motif_jax.rewards.section import JUDGED
from motif_jax.schedules import Decay, schedule
from motif_jax.stages import annotate, train_policy
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
OWN = f"{__name__}:Own"
JUDGE = {"is_model": False, "weights": "", "metadata": lambda self: {}, "open": lambda self: self}


@pytest.mark.parametrize("forgotten", JUDGE)
def test_a_judge_says_what_a_default_would_get_wrong(monkeypatch, forgotten):
    """Without `is_model` it had no cache, and no second order; without `weights`, a replaced model went unnoticed."""
    said = {name: one for name, one in JUDGE.items() if name != forgotten}
    monkeypatch.setattr(sys.modules[__name__], "Own", type("Own", (CaptionBackend,), said), raising=False)
    asked = get_config("oni_quickstart.py", "score,retrieval", **{"annotate.backend": OWN})
    for stage, config in ((annotate, get_config(**{"annotate.backend": OWN})), (train_policy, asked)):
        refusal(lambda stage=stage, config=config: check_stage(stage, config), f"{OWN}' does not define {forgotten}: ")
    monkeypatch.setattr(sys.modules[__name__], "Own", type("Own", (CaptionBackend,), JUDGE))
    check_stage(train_policy, asked)


@pytest.mark.parametrize(("table", "name", "stage"), [
    ("ALGORITHMS", "appo", train_policy), ("BACKENDS", "lexicon", annotate), ("SCHEDULES", "linear", train_policy),
    ("WORLDS", "nethack", train_policy),
])  # fmt: skip
def test_a_name_without_its_class_is_told_by_the_check(monkeypatch, table, name, stage):
    monkeypatch.setitem(getattr(names, table), name, "motif_jax.structs:Forgotten")
    with pytest.raises((UserError, AttributeError), match="Forgotten"):
        check_stage(stage, get_config())


@pytest.mark.parametrize("name", [*FIXED, *BY_SPECS])
def test_a_network_of_the_table_has_its_encoder(name):
    """There is one table: a network in one of two lists died when training started."""
    encoder = import_named((FIXED | BY_SPECS)[name].encoder)
    assert callable(encoder)
    assert name not in FIXED or encoder.reads == FIXED[name].reads


@pytest.mark.parametrize("name", JUDGED)
def test_a_kind_of_online_reward_says_whether_it_has_a_network(name):
    kind = import_named(JUDGED[name].kind)
    assert issubclass(kind, OnlineKind)
    assert issubclass(kind, NetworkKind) == JUDGED[name].has_network


HALVES = Decay(lambda start, share, steps: lambda count: start * 0.5 ** (count / steps), reaches_zero=False)


def test_a_decay_says_whether_it_can_end_at_zero(monkeypatch):
    for name in names.SCHEDULES:
        halfway = schedule(name, 1.0, 0.0, 8)(jnp.int32(4))
        assert (halfway > 0) == names.find(names.SCHEDULES, name).reaches_zero, name
    monkeypatch.setitem(names.SCHEDULES, "halves", f"{__name__}:HALVES")
    refusal(
        lambda: names.check_end("halves", 0.0, "--config.policy.x"), "the decay 'halves' never comes to 0", "config"
    )
    names.check_end("halves", 0.1, "--config.policy.x")


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_a_version_of_the_prompt_has_a_file_for_any_game(version):
    assert read_texts("a game", None).prompt(version).is_file()


@pytest.mark.repository
def test_a_value_of_the_config_is_read():
    """A coefficient whose term is not in the loss would change nothing."""
    read = set()
    for node in (node for module in MODULES for node in nodes_of(module)):
        match node:
            case ast.Attribute(attr=name) | ast.keyword(arg=name) | ast.arg(arg=name) | ast.Constant(value=str(name)):
                read.add(name)
    assert not [key for key in keys(tables()) if key.rpartition(".")[2] not in read]
