"""`configs/oni.py:TASK,KIND,reference`: what ONI's release does otherwise."""

import pytest
from conftest import get_config

from motif_jax.config.table import flatten

RELEASED = {
    "env.reference_extended": True,
    "annotate.sampling.top_p": 1.0,
    "policy.online.anchor": "none",
    "policy.online.normalise": False,
    "policy.reference_alignment": True,
}


@pytest.mark.quick
@pytest.mark.differs(
    "oni",
    there="requests send a temperature and a length, but not `top_p`",
    here="they send `top_p`, which is 0.95",
    reference="`top_p` is 1",
)
def test_reference_has_what_the_release_of_oni_does():
    plain, released = (flatten(get_config("oni.py", f"score,ranking{more}").to_dict()) for more in ("", ",reference"))
    assert {name: released[name] for name in RELEASED} == RELEASED
    assert not any(plain[name] == RELEASED[name] for name in RELEASED)
    assert plain["annotate.sampling.top_p"] == 0.95
