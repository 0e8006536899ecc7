import pytest

from benchmarks import peers
from benchmarks.peers import processes


@pytest.mark.slow
def test_our_side_of_each_comparison_runs(tmp_path):
    for name, peer in peers.PEERS.items():
        subject = peer.prepare(0.01, tmp_path)
        assert subject.run() > 0, name
        assert processes.json.dumps(subject.task), name
