"""Other people's libraries in the benchmark: what goes wrong with one becomes a row."""

import sys
from functools import partial

import pytest
from conftest import get_config

from benchmarks import peers
from benchmarks.peers import processes
from benchmarks.peers.processes import measure_rate

HONEST = "import json, sys\nprint('noise')\nprint(json.dumps({'rate': 2.0 * json.loads(sys.argv[1])['half']}))"


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
