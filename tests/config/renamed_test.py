"""Values of the config by the names that they had before."""

from pathlib import Path

import pytest
from conftest import ROOT

from motif_jax.config.file import find_config, load, shipped
from motif_jax.config.renamed import CHOICES, RENAMED, current_flag, current_values
from motif_jax.config.table import keys
from motif_jax.experiment import defaults, tables
from motif_jax.files import LAYOUT, write_json
from motif_jax.launch import split_config
from motif_jax.run import read_record

pytestmark = [pytest.mark.quick, pytest.mark.repository]
OLD, NEW = "policy.drrn.width", "drrn.width"


def test_every_old_name_is_gone_and_every_new_one_exists():
    known = keys(tables())
    assert not RENAMED.keys() & known.keys()
    assert {*RENAMED.values(), *CHOICES} <= known.keys()
    for name, words in CHOICES.items():
        choices = known[name].kind.choices
        assert set(words.values()) <= set(choices)
        assert not words.keys() & set(choices)


def test_a_flag_with_an_old_name_works_and_a_line_names_the_new_one(launch_here, tmp_path):
    arguments = ("--config=configs/motif.py", f"--workdir={tmp_path}", f"--config.{OLD}=77", "--print_config")
    done = launch_here(*arguments)
    first, _, printed = done.stdout.partition("\n")
    assert first == f"--config.{OLD}=77 is --config.{NEW}=77 now; the next version does not know the old one"
    assert '"width": 77' in printed
    assert current_flag("--config.seed=3") == "--config.seed=3"
    done = launch_here(*arguments[:2], "--config.annotate.order", "as_now", "--print_config")
    assert done.stdout.startswith("--config.annotate.order=as_now is --config.annotate.order=by_caption now;")
    assert current_flag(f"--noconfig.{OLD}") == f"--noconfig.{NEW}"


@pytest.mark.parametrize(("old", "new"), [
    ("configs/ilql.py:dialogue", "guessing:ilql"), ("ilql:comments,psi,reference", "comments:psi,reference"),
    ("ilql_quickstart:dialogue,bc", "guessing:bc,small"), ("configs/ilql_quickstart.py:comments", "comments:small"),
    ("glam:goto_local,smollm2,grpo", "groups:goto_local,smollm2,grpo"),
])  # fmt: skip
def test_a_config_of_a_world_in_contrib_is_found_by_its_old_name(launch_here, tmp_path, monkeypatch, old, new):
    monkeypatch.chdir(ROOT)
    done = launch_here(f"--config={old}", f"--workdir={tmp_path}", "--print_config")
    first, _, printed = done.stdout.partition("\n")
    assert first == f"--config={old} is --config={new} now; the next version does not know the old one"
    assert printed == launch_here(f"--config={new}", f"--workdir={tmp_path}", "--print_config").stdout
    own = tmp_path / "ilql.py"  # a user's file of this name is theirs
    assert split_config(["motif_jax", f"--config={own}:dialogue"])[0] == (str(own), "dialogue")
    own.touch()
    assert split_config(["motif_jax", f"--config={own}:dialogue"])[0] == (str(own), "dialogue")


def test_a_config_that_a_plugin_has_now_is_found_by_its_old_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Path(find_config("configs/options.py")) == shipped()["options"]
    assert find_config("configs/elsewhere/options.py") == "configs/elsewhere/options.py"


@pytest.mark.parametrize("begin", ["defaults()", "ConfigDict({'policy': {'drrn': {'width': 5}}})"])
def test_a_config_file_may_set_old_names(tmp_path, begin):
    file = tmp_path / "own.py"
    file.write_text(
        "from motif_jax.experiment import defaults\nfrom ml_collections import ConfigDict\n"
        f"def get_config():\n    config = {begin}\n    config.policy.drrn.width = 77\n    return config\n"
    )
    config = load(str(file), None, tables())
    assert config.drrn.width == 77
    assert "drrn" not in config.policy
    assert "drrn" not in defaults().policy


def test_the_record_of_a_workdir_may_have_old_names(tmp_path):
    assert current_values({OLD: 5, "seed": 1}) == {NEW: 5, "seed": 1}
    write_json(tmp_path / "config.json", {"layout": LAYOUT, "policy": {"drrn": {"width": 77}}})
    assert read_record(tmp_path / "config.json")[NEW] == 77
