"""The checksum by which a policy knows the reward that it is trained on."""

import hashlib
import types

import numpy as np
import pytest

from motif_jax.rewards.learnt_source import reward_checksum
from motif_jax.rewards.statistics import RewardStatistics

pytestmark = pytest.mark.quick


def test_without_an_anchor_it_is_that_of_earlier_versions():
    params = np.arange(3, dtype=np.float32)
    known = hashlib.sha256(b"RewardStatistics(mean=1.5, variance=2.0, quantiles={'0.50': 0.25})" + params.tobytes())
    plain, anchored = (
        types.SimpleNamespace(params=params, statistics=RewardStatistics(1.5, 2.0, {"0.50": 0.25}, anchor))
        for anchor in (None, 1.5)
    )
    assert reward_checksum(plain) == known.hexdigest() != reward_checksum(anchored)
