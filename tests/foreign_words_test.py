"""Texts that others wrote never command the terminal: all that stages print goes through one place."""

import ast
from pathlib import Path

import numpy as np
import pytest
from chat_server import ChatServer
from conftest import get_config
from lies import ESCAPE, reply, say
from report_workdir import make_replay, write_player
from small_dataset import EVENTS, random_pairs, write_dataset
from toy_policies import TASK

from motif_jax import experiment
from motif_jax.console import LONGEST_LINE, clean
from motif_jax.replays.replay import save_replay
from motif_jax.structs import UserError
from motif_jax.system.metrics import Progress

PACKAGE = Path(__file__).parent.parent / "motif_jax"
OWN_SCREENS = {"console.py", "system/startup.py", "launch.py", "envs/nethack/gym_game.py", "replays/scene.py"}
HOSTILE = tuple(f"{event}{ESCAPE}" for event in EVENTS)


def harmless(text: str, allowed: str = "\n") -> bool:
    lines = text.splitlines()
    return all(mark.isprintable() or mark in allowed for mark in text) and all(len(x) < 3 * LONGEST_LINE for x in lines)


@pytest.mark.quick
def test_everything_is_printed_in_one_place():
    found = []
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and str(file.relative_to(PACKAGE)) not in OWN_SCREENS:
                call, first = ast.unparse(node.func), ast.unparse(node.args[0]) if node.args else ""
                if call == "os.write" and first not in ("1", "2"):
                    continue
                if call in ("print", "sys.stdout.write", "sys.stderr.write", "tqdm.write", "os.write"):
                    found.append(f"{file}:{node.lineno}")
    assert not found, "print_line of console.py cleans what it prints"


def answer(number: int, body: dict) -> object:
    """A verdict among escape sequences, or, to questions about jackals, an error full of them."""
    if "jackal" in str(body["messages"]):
        return reply(ESCAPE * 9, f"HTTP/1.1 400 {ESCAPE}\r\n".encode())
    return reply(say(f'{ESCAPE} ("best_description": {1 + number % 2}) {ESCAPE}'))


def test_no_stage_passes_on_what_others_wrote(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(Progress, "LINE_EVERY_S", 0.0)
    base = tmp_path / f"a{ESCAPE}b"
    source, workdir = write_dataset(base / "theirs", random_pairs(60, events=HOSTILE)), base / "run"
    np.save(source / f"info/{ESCAPE}.npy", np.full((60, 2), ESCAPE))
    (source / f"read{ESCAPE}me.txt").write_text(ESCAPE)
    write_player(workdir, f"other{ESCAPE}", 0, 10.0, HOSTILE, ESCAPE)
    save_replay(workdir / "film.npz", make_replay(ESCAPE, HOSTILE, {"end_status": ESCAPE, "cause": ESCAPE}, [ESCAPE]))
    config = get_config(argument=TASK)
    config.collect.dataset = str(source)
    config.annotate.update(backend="server", cache_dir=str(base / "answers"), goal=f"please {ESCAPE}", both_orders=0.0)
    config.reward.update(num_epochs=1, message="lt_cnn_small")
    config.evaluate.update(policy="random", baselines="", episodes=2, num_workers=0, games_per_worker=2)
    config.visualize.replay = str(workdir / "film.npz")
    stages = ["collect", "annotate", "train_reward", "evaluate", "report", "visualize"]
    refused = []
    with ChatServer(answer) as chat:
        config.annotate.server.update(url=chat.url, in_flight=1)
        for _ in range(2):  # the second time much is complete, and the rest is read again
            for stage in stages:
                try:
                    experiment.run(config.to_dict(), workdir, [stage])
                except UserError as error:
                    refused.append(f"{stage}: {error}")
    said = capfd.readouterr()
    assert not refused
    assert harmless(said.out), said.out
    assert harmless(said.err), said.err
    for stage in stages[:-1]:
        assert f"{stage}: " in said.out + said.err
    assert "\\x1b]0;owned\\x07" in said.out


@pytest.mark.quick
@pytest.mark.parametrize(("text", "shown"), [
    ("plain, with ümlaut", "plain, with ümlaut"),
    ("\x1b[2Jgone\x07", "\\x1b[2Jgone\\x07"),
    ("two\nlines\r\t", "two\\nlines\\r\\t"),
    ("\udcff", "\\udcff"),  # of a file name that is no UTF-8
    ("\u202etxt.exe", "\\u202etxt.exe"),  # would be shown backwards
])  # fmt: skip
def test_control_characters_are_shown_as_escapes(text, shown):
    assert clean(text) == shown


@pytest.mark.quick
def test_long_texts_lose_their_middle():
    shown = clean("a" * 1000 + "b" * 1000, 101)
    assert shown == "a" * 48 + " ... " + "b" * 48
