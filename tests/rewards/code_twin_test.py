"""Rewards of programs for many steps and games at once equal those of a slow interpreter of one game and step."""

import itertools
import random
import re

import numpy as np
import pytest
from code_slow import GAMES, SMALL_WORLD, SlowGame, cut_in_pieces, play, program_text

from motif_jax.rewards.code.checking import check
from motif_jax.rewards.code.names import find_readable, readable_from
from motif_jax.rewards.code.running import MOST_PAID, Runner
from motif_jax.rewards.code.source import terms_of
from motif_jax.rewards.code.tokens import ProgramError

READABLE = find_readable(SMALL_WORLD)
PROGRAMS = 1200


def programs(first, number):
    """Generated programs that are within the limits, checked."""
    tries = (
        (checked(program_text(1000 * seed + attempt)) for attempt in range(100)) for seed in itertools.count(first)
    )
    return [next(filter(None, of_seed)) for of_seed in itertools.islice(tries, number)]


def checked(text):
    """The program; None if it is too large or too deep."""
    try:
        return check(text, READABLE)
    except ProgramError as error:
        if not re.search(r"at most 64 numbers|levels deep", str(error)):
            raise
        return None


@pytest.mark.parametrize("part", range(4))
def test_the_fast_evaluator_equals_the_slow_one(part):
    size, differs = PROGRAMS // 4, 0
    for number, program in enumerate(programs(part * size, size)):
        whole, chances = play(part * size + number), random.Random(number)
        slow = np.array([SlowGame(program, whole, column).rewards() for column in range(GAMES)]).T
        fast, runner = np.zeros(slow.shape), Runner(program)
        for batch, at in cut_in_pieces(whole, chances):
            found = runner.rewards(batch)
            for piece, (start, end) in enumerate(itertools.pairwise(at)):
                fast[start:end] = found[:, piece * GAMES : (piece + 1) * GAMES]
        np.testing.assert_allclose(fast, slow, rtol=1e-9, atol=1e-9, err_msg=program.text)
        assert np.isfinite(fast).all()
        assert np.abs(fast).max() <= 1e6
        differs += len(np.unique(fast)) > 1
    assert differs > size / 2  # most programs pay something in some steps, and less in others


@pytest.mark.quick
def test_a_checkpoint_gives_the_same_rewards():
    whole = play(0)
    batch = whole | {"game": np.array([[0, 1, 2]])}
    for program in programs(5000, 100):
        again = check(program.text, readable_from(program.uses.record()))
        assert again.observations == program.observations
        np.testing.assert_array_equal(Runner(again).rewards(batch), Runner(program).rewards(batch))


@pytest.mark.quick
def test_terms_add_up_to_the_program_where_no_limit_applies():
    whole, sums = play(0) | {"game": np.array([[0, 1, 2]])}, 0
    for program in programs(7000, 500):
        terms = terms_of(program)
        rewards, *found = (Runner(one).rewards(whole) for one in (program, *terms))
        unlimited = (np.abs([rewards, *found]) < MOST_PAID).all(0)
        np.testing.assert_allclose(np.sum(found, 0)[unlimited], rewards[unlimited], rtol=1e-9, atol=1e-9)
        sums += len(terms) > 1 and unlimited.any()
        for term, one in zip(terms, found, strict=True):  # the text of a term is a program of the same rewards
            np.testing.assert_array_equal(Runner(check(term.text, READABLE)).rewards(whole), one, term.text)
    assert sums > 40
