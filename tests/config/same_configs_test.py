"""No default moves unnoticed: all shipped configs, with all their arguments, are as recorded."""

import json
import os

import pytest
from conftest import ROOT, get_config

from motif_jax.config.renamed import CHOICES, current_choice, current_config, current_values
from motif_jax.config.table import flatten

pytestmark = [pytest.mark.quick, pytest.mark.repository]
# {"FILE:ARGUMENT": {key: repr of its value}} on a machine of 4 cores: all keys of motif:score; of others what differs
# from their file's first entry, and of first entries what differs from motif:score.
RECORDED = json.loads((ROOT / "tests/fixtures/configs.json").read_text())
BASE = "motif:score"


@pytest.mark.differs(
    "oni",
    there="requests send a temperature and a length, but not `top_p`",
    here="they send `top_p`, which is 0.95",
    reference="`top_p` is 1",
)
@pytest.mark.parametrize("name", RECORDED)
def test_configs_are_as_recorded(name, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(4)))
    file, _, argument = name.partition(":")
    first = next(other for other in RECORDED if other.partition(":")[0] == file)
    wanted = current_values(RECORDED[BASE] | RECORDED[first] | RECORDED[name])
    for key in CHOICES.keys() & wanted.keys():
        wanted[key] = repr(current_choice(key, wanted[key].strip("'")))
    file, argument = current_config(file, argument)
    now = flatten(get_config(f"{file}.py", argument).to_dict())
    assert {key: repr(now[key]) for key in wanted} == wanted  # values that were added since have their defaults
