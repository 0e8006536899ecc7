"""What is drawn, and what refusing means."""

from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from motif_jax.structs import UserError

SETTINGS = settings(
    derandomize=True, deadline=None, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
WORDS = st.sampled_from([
    "explorer", "random", "runs/a", ":", "@", ",", "all", "last", "0.3", "1e999", "nan", "-1", "7", "/", " ", "é", "\0",
    "\n", "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT THREE}", "9" * 5000,
])  # fmt: skip
GRAMMAR = st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=8).map("".join))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


def refused(attempt: Callable[[], object]) -> bool:
    """Whether it was refused, which must be in one sentence."""
    try:
        attempt()
    except UserError as error:
        return len(str(error).splitlines()) == 1
    return False
