"""What acts with options, made from the sizes of their heads alone."""

from collections.abc import Sequence

from motif_jax.contrib.options.acting import Options


def options_of(actions: int, count: int, lengths: Sequence[int], coefficients: Sequence[float] = ()) -> Options:
    """`count` options over `actions` actions; with coefficients, their mixtures, which sum to one."""
    record = {"names": [*"abcdefgh"[:count]], "lengths": [*lengths]}
    if coefficients:
        record |= {"coefficients": [*coefficients], "sum_to_one": True}
    return Options({"num_actions": actions, "options": record})
