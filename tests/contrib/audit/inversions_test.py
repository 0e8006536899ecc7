import numpy as np
import pytest

from motif_jax.contrib.audit.findings import FEWEST_QUESTIONS as FEWEST
from motif_jax.contrib.audit.findings import TESTED, Captions, binomial_tail, check_inversions

pytestmark = pytest.mark.quick


def wrong_share(captions, values, pairs, target, others) -> dict[int, tuple[float, int]]:
    """Of each group, by one reward: the share of the questions on the wrong side, and their number. Pair by pair."""
    questions: dict[tuple[int, int], list[float]] = {}
    for (first, second), p in zip(pairs.tolist(), target.tolist(), strict=True):
        unknown = any(np.isnan(one[at]) for one in others for at in (first, second))
        if p != p or p == 0.5 or unknown or captions.group[first] == captions.group[second]:
            continue
        ahead = values[second] - values[first]
        wrong = 0.5 if ahead == 0 else float((ahead > 0) != (p > 0.5))
        questions.setdefault((min(first, second), max(first, second)), []).append(wrong)
    found: dict[int, list[float]] = {}
    for (first, second), wrongs in questions.items():
        for at in (first, second):
            found.setdefault(int(captions.group[at]), []).append(sum(wrongs) / len(wrongs))
    return {group: (sum(wrongs) / len(wrongs), len(wrongs)) for group, wrongs in found.items()}


@pytest.mark.parametrize("seeds", [1, 2])
def test_inversions_are_those_of_a_slow_count(seeds):
    rng = np.random.default_rng(seeds)
    group = rng.integers(12, size=80)
    values = rng.normal(size=(seeds, 80)).round(1)
    values[rng.random(values.shape) < 0.05] = np.nan
    names = [f"kind {number}" for number in range(12)]
    second = values[1] if seeds == 2 else None
    captions = Captions([*map(str, range(80))], values[0], group, names, np.full(12, np.nan), second=second)
    pairs = rng.integers(80, size=(3000, 2))
    target = rng.choice([0.0, 0.2, 0.5, 0.9, np.nan], 3000)

    counts = [wrong_share(captions, one, pairs, target, values) for one in values]
    expected = {
        names[at]: binomial_tail(share * size, size, 0.5)
        for at, size in ((at, size) for at, (_, size) in counts[0].items() if size >= FEWEST)
        if (share := min(count[at][0] for count in counts)) > 0.5
    }
    check = check_inversions(captions, pairs, target)
    assert 1 <= len(expected) <= TESTED
    assert check.tested == sum(size >= FEWEST for _, size in counts[0].values())
    assert {one.sentence.split("'")[1]: one.p for one in check.suspicions} == pytest.approx(expected)
    assert check.scope.endswith(["one reward", "two rewards"][seeds - 1])
