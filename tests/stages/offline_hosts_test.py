"""Two hosts train a language model together: real processes that meet on loopback."""

import json

import numpy as np
import pytest
from host_processes import address, ended, start
from train_language_test import TINY, talks

from motif_jax.files import read_json


@pytest.mark.differs(
    "ilql", there="gradients are not summed over processes", here="they are sums over all devices and hosts"
)
@pytest.mark.slow
def test_two_hosts_learn_what_one_does(tmp_path):
    """Each computes half of the rows of every batch; the first writes; the second run goes on from its checkpoint."""
    talks(tmp_path / "talks.jsonl")
    values = TINY | {"transcripts.import_from": tmp_path / "talks.jsonl", "train_language.num_epochs": 2}
    values |= {"train_language.learning_rate_end": 1.0}  # so that more epochs are more of the same
    alone, together = tmp_path / "alone", tmp_path / "together"

    def flags(workdir, **changes):
        more = [f"--config.{name.replace('__', '.')}={value}" for name, value in (values | changes).items()]
        return ["launch", "--config=configs/motif.py", f"--workdir={workdir}", "--stage=train_language", *more]

    ((status, _, errors),) = ended([start(*flags(alone))])
    assert status == 0, errors
    for epochs in (1, 2):
        hosts = [
            start(*flags(together, train_language__num_epochs=epochs, distributed__num_processes=2,
                         distributed__coordinator=where, distributed__process_id=me))
            for where in [address()] for me in range(2)
        ]  # fmt: skip
        ends = ended(hosts)
        assert [status for status, _, _ in ends] == [0, 0], ends
        assert "train_language: " in ends[0][1]
        assert "train_language: " not in ends[1][1]  # the first host writes
    assert "going on after" in ends[0][1]

    rows = [
        [json.loads(line) for line in (workdir / "language/metrics.jsonl").read_text().splitlines()]
        for workdir in (alone, together)
    ]
    assert [row["steps"] for row in rows[0]] == [row["steps"] for row in rows[1]]
    for one, other in zip(*rows, strict=True):
        for name in ("loss", "gradient_norm", "valid_loss"):
            if name in one:
                np.testing.assert_allclose(one[name], other[name], rtol=1e-3)
    counts = [read_json(workdir / "language/summary.json")["steps"] for workdir in (alone, together)]
    assert counts[0] == counts[1]
