"""Words of launch/quickstart.sh that folders of contrib have."""

import pytest
from scripts_test import quickstart

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(("word", "config", "hint"), [
    ("options", "options:treasure", "--config.evaluate.baselines=random,#gold,#stairs"),
    ("code", "code_quickstart:doorkey", "--config.policy.sources=code:MY.reward"),
    ("code:gold", "code_quickstart:gold", ".writer=server"),
])  # fmt: skip
def test_a_folder_has_its_config_and_says_what_else_there_is(tmp_path, word, config, hint):
    done, (call,) = quickstart(tmp_path, word, "--config.seed=3")
    assert call.endswith(f"--config={config} --workdir={tmp_path / 'a b'} --config.seed=3")
    assert hint in done.stdout


@pytest.mark.parametrize(("arguments", "said"), [
    (["code", "--goal=gold"], "--goal=gold is of NetHack, and code plays MiniGrid's DoorKey"),
    (["options", "--engine"], "--engine builds NetHack's library, and options plays treasure"),
    (["code:chess"], "unknown game 'chess': write code, code:doorkey or code:gold"),
])  # fmt: skip
def test_what_a_folder_does_not_play_is_refused(tmp_path, arguments, said):
    done, calls = quickstart(tmp_path, *arguments, status=2)
    assert done.stderr == f"motif_jax: {said}\n"
    assert not calls


def test_the_engine_is_built_for_a_folder_that_plays_nethack(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-compiler")  # so that the build ends at its first check
    done, calls = quickstart(tmp_path, "code:gold", "--engine", status=2)
    assert "this machine lacks what the engine is built with" in done.stderr
    assert not calls
