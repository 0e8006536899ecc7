import re

import pytest
from conftest import ROOT, get_config

from motif_jax.config.table import ALWAYS, describe, flatten, keys
from motif_jax.envs.nethack.tasks import TASKS
from motif_jax.experiment import tables

pytestmark = pytest.mark.quick


def test_every_value_that_reference_sets_says_what_differs():
    changed = set()
    for task in (*TASKS, "toy"):
        plain, reference = (flatten(get_config(argument=f"{task}{more}").to_dict()) for more in ("", ",reference"))
        changed |= {key for key in plain if plain[key] != reference[key]}
    assert changed == {key for key, value in keys(tables()).items() if value.differs}


def test_the_page_for_users_of_motif_has_the_whole_list():
    page = " ".join((ROOT / "docs/differences/motif.md").read_text().split())
    differences = [value.differs for value in keys(tables()).values() if value.differs]
    for line in (*differences, *ALWAYS):
        assert f"- {line[:1].upper()}{line[1:]}." in page, f"docs/differences/motif.md lacks: {line}"
        assert line in describe("reference", tables(), {})


def test_help_lists_its_topics_and_shows_a_configs_values():
    topics = re.findall(r"^--help=(\w+) ", describe("", tables(), {}), re.MULTILINE)
    assert {*topics} == {name or "experiment" for name in tables()} | {"all", "reference", "markdown"}
    for topic in topics:
        assert describe(topic, tables(), {})
    assert "--config.policy.clip_c=1.0\n" in describe("policy", tables(), {})
    assert "--config.policy.clip_c=2.0\n" in describe("policy", tables(), {"policy.clip_c": 2.0})
    assert "--config.policy.num_workers=usable_cores()\n" in describe("all", tables(), {})
