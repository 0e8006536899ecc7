"""Other people's libraries in the benchmark: what goes wrong with one becomes a row."""

import sys
import time
from functools import partial

import numpy as np
import pytest
from conftest import get_config
from flax import nnx

from benchmarks import peers
from benchmarks.peers import processes
from benchmarks.peers.processes import PeerError, install, measure_rate, run, versions_of
from motif_jax.structs import ArraySpec

HONEST = "import json, sys\nprint('noise')\nprint(json.dumps({'rate': 2.0 * json.loads(sys.argv[1])['half']}))"
BAD = {  # what a peer's script does: what is said of it
    "raise ValueError('no \\x1b[2J games')": r"ValueError: no .* games \(status 1\)",
    "import os; os._exit(7)": r"no output \(status 7\)",
    "import os; os.kill(os.getpid(), 9)": r"no output \(status -9\)",
    "print('ready')": "it printed no rate; its last line: ready",
    "print('{\"rate\": NaN}')": "its rate is nan",
    "print('{\"rate\": 1e999}')": "its rate is inf",
    "print('{\"rate\": -3}')": "its rate is -3",
    "print('{\"rate\": true}')": "its rate is True",
    'print(\'{"rate": "fast"}\')': "its rate is fast",
    "print('[' * 100_000)": r"it printed no rate; its last line: \[\[",
    "print('\\n'.join(['x' * 1000] * 1000))": "it printed no rate; its last line: x",
    "import sys; sys.stdout.buffer.write(bytes(range(256)))": "it printed no rate",
}
ENDLESS = [
    "import time; time.sleep(600)",
    "import os, time; print('gone', flush=True); os.close(1); os.close(2); time.sleep(600)",
    "while True: print('y' * 60)",
]


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Writes a peer's script, and a folder that looks like an environment."""
    monkeypatch.setattr(processes, "SCRIPTS", tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)

    def write(text):
        (tmp_path / "run_fake.py").write_text(text)
        return partial(measure_rate, "fake", tmp_path, {"half": 21})

    return write


@pytest.mark.quick
def test_a_peer_states_its_rate(script):
    assert script(HONEST)() == 42.0


@pytest.mark.quick
def test_a_peer_leaves_no_files_where_the_benchmark_runs(script, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    script(f"open('left', 'w').close()\n{HONEST}")()
    assert not any((tmp_path / "here").iterdir())


@pytest.mark.quick
@pytest.mark.parametrize("text", BAD)
def test_a_peer_that_fails_is_described(script, text):
    with pytest.raises(PeerError, match=BAD[text]):
        script(text)()


@pytest.mark.quick
@pytest.mark.parametrize("text", ENDLESS)
def test_a_peer_that_does_not_end_is_ended(script, monkeypatch, text):
    monkeypatch.setattr(processes, "RUN_S", 2.0)
    with pytest.raises(PeerError, match="it did not end within 2 seconds; its last line: "):
        script(text)()


@pytest.mark.quick
def test_processes_that_a_peer_leaves_behind_are_ended(tmp_path):
    left = "import os, time\nchild = os.fork()\nif not child:\n    os.close(1)\n    os.close(2)\n"
    left += "    time.sleep(600)\nprint(child)"
    child = int(run([sys.executable, "-c", left], 60.0))
    while is_running(child):  # a kill takes effect a moment later
        time.sleep(0.01)


def is_running(process):
    try:
        return processes.Path(f"/proc/{process}/stat").read_text().split()[2] not in "ZX"
    except OSError:
        return False


@pytest.mark.quick
def test_an_interpreter_that_is_missing_is_described(tmp_path):
    with pytest.raises(PeerError, match="No such file"):
        run([str(tmp_path / "python")], 60.0)


def test_an_environment_is_made_once_and_again_when_its_list_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PINNED", tmp_path)
    (tmp_path / "empty.txt").write_text("# nothing\n")
    environment = install("empty", tmp_path / "made")
    (environment / "kept").touch()
    assert install("empty", tmp_path / "made") == environment
    assert (environment / "kept").exists()
    assert versions_of(environment) == {}
    (tmp_path / "empty.txt").write_text("# nothing else\n")
    install("empty", tmp_path / "made")
    assert not (environment / "kept").exists()


def test_the_part_names_what_is_missing_and_what_fails_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PINNED", tmp_path)
    monkeypatch.setattr(processes, "SCRIPTS", tmp_path)
    for name, text in {"missing": "--no-index\nno-such-package==1.0\n", "broken": "", "honest": ""}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "run_broken.py").write_text("raise RuntimeError('another version')")
    (tmp_path / "run_honest.py").write_text(HONEST)
    subject = peers.Subject(lambda: 84.0, {"half": 21}, {"games": 3})
    fake = peers.Peer("motif-fake", "steps/s", lambda seconds, folder: subject)
    monkeypatch.setattr(peers, "PEERS", dict.fromkeys(("missing", "broken", "honest"), fake))
    config = get_config()
    config.benchmark.repeats = 2
    rows = {row.name: row for row in peers.measure(config, tmp_path / "work")}
    assert "no-such-package" in rows["peers.missing"].sizes["not installed"]
    assert rows["peers.broken"].sizes["failed"].startswith("RuntimeError: another version")
    assert (rows["peers.honest"].value, rows["peers.honest.ours"].value) == (42.0, 84.0)
    assert rows["peers.over_honest"].value == 2.0
    assert len(rows) == 5


@pytest.mark.slow
def test_our_side_of_each_comparison_runs(tmp_path):
    for name, peer in peers.PEERS.items():
        subject = peer.prepare(0.01, tmp_path)
        assert subject.run() > 0, name
        assert processes.json.dumps(subject.task), name


@pytest.mark.quick
def test_the_network_of_the_comparison_has_layers_of_equal_width():
    specs = {"blstats": ArraySpec((27,), "float32")}
    encoder = peers.Encoder(specs, dtype=np.float32, rngs=nnx.Rngs(0))
    assert encoder({"blstats": np.ones((2, 27))}).shape == (2, peers.WIDTHS[-1])
    assert [layer.out_features for layer in encoder.layers] == [*peers.WIDTHS]
