import pytest
from conftest import ROOT, refusal

from motif_jax.config.file import load, nearest
from motif_jax.config.table import keys
from motif_jax.experiment import defaults, tables

HEAD = f"""
import runpy
def get_config(argument="score"):
    config = runpy.run_path({str(ROOT / "configs/motif.py")!r})["get_config"](argument)
"""  # four lines
FAULTS = {
    HEAD + "    config.collect.num_pair = 3\n    return config": "sets 'collect.num_pair', which is not a value "
    "of the config (--config): did you mean 'collect.num_pairs'?",
    HEAD + "    pass": "get_config of the config file ",
    HEAD + "    return": "returned None, not a ConfigDict (--config)",
    HEAD + "    return {'seed': 3}": "returned {'seed': 3}, not a ConfigDict",
    HEAD + "    return config.to_json()": "not a ConfigDict",
    "": "has no function get_config",
    "get_config = 5": "has no function get_config",
    "def get_config(one):\n    return one": "cannot be called with no argument: missing a required argument: 'one'",
    HEAD + "    config.policy.clip_c = None\n    config.policy.x = 1\n    return config": "sets 'policy.x'",
}


@pytest.mark.quick
@pytest.mark.parametrize(("text", "said"), FAULTS.items(), ids=range(len(FAULTS)))
def test_a_value_that_does_not_exist_is_named(tmp_path, text, said):
    file = tmp_path / "mine.py"
    file.write_text(text)
    assert len(refusal(lambda: load(str(file), None, tables()), said, "--config")) < 600


@pytest.mark.quick
def test_a_value_that_refers_to_another_follows_the_command_line(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(HEAD + "    config.reward.num_epochs = config.get_ref('seed') * 2\n    return config")
    config = load(str(file), None, tables())
    config.seed = 5  # as a flag does
    assert config.reward.num_epochs == 10


@pytest.mark.quick
def test_what_a_file_lacks_has_its_default(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(HEAD + "    del config.policy, config.env.babyai; config.collect.keep_empty = 1\n    return config")
    config = load(str(file), "toy", tables())
    assert config.env.task == "toy"
    assert config.policy == defaults().policy
    assert config.env.babyai == defaults().env.babyai
    assert type(config.collect.keep_empty) is float  # so that the command line may say 0.5


@pytest.mark.quick
@pytest.mark.parametrize(("given", "near"), [
    ("polcy.lr", "policy.learning_rate"), ("policy.learning_rat", "policy.learning_rate"),
    ("num_pairs", "collect.num_pairs"), ("env.babyai.levl", "env.babyai.level"), ("sed", "seed"),
    ("polic.online.kinds", "policy.online.kind"), ("train_value.polyak", "train_values.polyak"),
])  # fmt: skip
def test_misspelt_names_suggest_the_nearest_value(given, near):
    assert nearest(given, keys(tables())) == near


def test_help_shows_values_with_their_limits(launch):
    done = launch("--help=policy", "--config=configs/motif.py", status=0)
    _, _, told = done.stdout.partition("--config.policy.reward_clip=10.0\n")
    assert told.splitlines()[1] == "    a number above 0 (or infinite); decides the result"
