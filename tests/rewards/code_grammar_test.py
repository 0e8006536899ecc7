"""The grammar of reward programs, what recognises their beginnings, and their rewards beside a slow interpreter."""

import itertools
import random
import re

import numpy as np
import pytest
from code_attacks_test import mutations
from code_slow import GAMES, SMALL_WORLD, SlowGame, cut_in_pieces, play, program_text
from conftest import ROOT, refusal

from motif_jax.rewards.code import grammar
from motif_jax.rewards.code.grammar import ProgramError, as_ebnf, check, terms_of
from motif_jax.rewards.code.names import Readable, find_readable, readable_from
from motif_jax.rewards.code.recogniser import Grammar, ProgramGuide, Speller
from motif_jax.rewards.code.running import MOST_PAID, Runner
from motif_jax.tokens import LetterTokeniser, WordTokeniser

READABLE = find_readable(SMALL_WORLD)
SPELLER = Speller(Grammar(READABLE))
NARROW = Speller(Grammar(READABLE, 32, narrow=True))
LETTERS = [f"{chr(code)}" for code in range(32, 127)]


def is_accepted(text, readable=READABLE):
    try:
        check(text, readable)
    except ProgramError:
        return False
    return True


def spelt(text, speller=SPELLER):
    """The state after a text; None if some prefix of it is not viable."""
    spelling = speller.start
    for character in text:
        spelling = spelling and speller.step(spelling, character)
    return spelling


def is_written(text, speller=SPELLER):
    """Whether it can be spelt, and end."""
    spelling = spelt(text, speller)
    return bool(spelling and speller.ends(spelling))


def texts(number):
    """Programs, and changed ones, of which most are wrong. Numbers have no exponents, which are not written."""
    for text in itertools.islice(itertools.chain(map(program_text, range(400, 400 + number)), mutations()), 2 * number):
        if not re.search(r"\de", text):
            yield text


@pytest.mark.quick
def test_the_docs_have_the_functions_and_operators_of_the_table():
    table = (ROOT / "docs/code-rewards.md").read_text().partition("| operator | value |")[2].partition("\n\n")[0]
    told = {word for row in table.splitlines() for word in re.findall(r"`([^`(]+)", row.partition(" | ")[0])}
    assert told - {" "} == grammar.FUNCTIONS.keys() | grammar.OPERATORS.keys() | grammar.PREFIXES.keys()


REFUSED = [
    "gold glod", "gained(2)", "gained(event_found)", "once(gold)", "lit == 1", "view", "view == map", "any(gold == 1)",
    "gold / level", "gold / 0", "gold / (0.0)", "at(view, 0)", "at(view, 3, 0)", "at(view, 0, 0, 0)", "at(gold, 0)",
    "distance(heights, 1)", "distance(stats, 1)", 'says(mission)', 'says("")', 'says(" ")', 'says("a", mission)',
    "1 < gold < 3", "not gold", "gold + ", "min(gold)", "still(1)", "abs()", "a - not lit < 1", "mission", '"x" == 1',
    "gold - not lit == 1", "max(1, 2, 3, 4, 5, 6, 7, 8, 9)", "2gold", "gold gold", "unknown", "still", "gold(1)",
]  # fmt: skip


def test_every_prefix_of_a_program_that_is_accepted_is_viable_and_a_refused_text_never_ends():
    accepted = []
    for text in [*REFUSED, *texts(80)]:
        accepted.append(is_accepted(text))
        assert is_written(text) == accepted[-1], text
    assert not any(accepted[: len(REFUSED)])
    assert 40 < sum(accepted) < len(accepted) - 27 - len(REFUSED)


@pytest.mark.parametrize("speller", [SPELLER, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("seed", range(2))
def test_what_can_be_begun_can_be_completed(seed, speller):
    chances = random.Random(seed)
    for _ in range(12):
        spelling, text = speller.start, ""
        for _ in range(chances.randint(0, 90)):
            found = {one: after for one in LETTERS if (after := speller.step(spelling, one))}
            if not found:
                break
            one = chances.choice([*found])
            text, spelling = text + one, found[one]
        whole = text if speller.ends(spelling) else text + speller.complete(spelling)
        assert is_accepted(whole), (text, whole)


@pytest.mark.parametrize(("longest", "longer", "begun"), [
    ("+".join(["gold"] * 32), "+".join(["gold"] * 33), "+".join(["gold"] * 32) + "+"),  # 63 nodes and 65
    ("-" + "+".join(["gold"] * 32), "--" + "+".join(["gold"] * 32), "--" + "+".join(["gold"] * 31) + "+"),  # 64, 65
    ("(" * 12 + "gold" + ")" * 12, "(" * 13 + "gold" + ")" * 13, "(" * 13),
    ("-" * 11 + "gold", "-" * 12 + "gold", "-" * 12),  # levels
    ("gold+" * 3 + "(" * 12 + "1*(2)" + ")" * 12, None, None),
    ("1-(1-(1-(1-(1-(1-(1-(1-(1-(1-(1-gold))))))))))", "1-(1-(1-(1-(1-(1-(1-(1-(1-(1-(1-(1-gold)))))))))))",
     "1-(1-(1-(1-(1-(1-(1-(1-(1-(1-(1-(1-"),
])  # fmt: skip
def test_the_limits_are_exact(longest, longer, begun):
    assert (grammar.MOST_NODES, grammar.MOST_LEVELS) == (64, 12)
    assert is_accepted(longest) == is_written(longest)
    if longer:
        assert is_accepted(longest)
        assert not is_accepted(longer)
        assert spelt(longer) is None
        assert spelt(begun) is None
        assert spelt(begun[:-1])


@pytest.mark.quick
def test_a_world_without_names_has_programs_of_numbers_and_captions():
    nothing = Readable({}, {}, ())
    speller = Speller(Grammar(nothing))
    for text, is_program in [("1 + 2", True), ('says("x")', True), ("still()", False), ("gained(", False)]:
        assert is_written(text, speller) == is_program == is_accepted(text, nothing), text
    narrow = Grammar(nothing, narrow=True)
    assert check("".join(one.text for one in narrow.complete(narrow.start)), nothing).root.of == "step"


@pytest.mark.quick
@pytest.mark.parametrize(("text", "better"), [
    ("1 + gold + 2 * 3", "1 + gold + 6"), ("gold + ((gold + 1) * 2)", "gold + 2 * (gold + 1)"),
    ("abs((gold))", "abs(gold)"), ("gold > abs(1)", "gold > 1"), ("gold + --1", "gold + 1"),
    ("gold * (2 - 1)", "gold * 2"), ("gold + max(1, 2)", "gold + max(gold, 2)"),
    ('gold + (mission == "red")', 'gold + says(mission, "red")'), ("-1", "-1 * gained(gold)"),
    ("once(rose(lit))", "once(lit)"), ("record(1 + abs(gained(gold)))", "record(1 + abs(gold))"),
    ('once(says("a") + says("b") > 0)', 'once(says("a") or says("b"))'), ("gained(gold + lit)", "gained(gold + level)"),
])  # fmt: skip
def test_a_narrow_grammar_has_nothing_without_meaning(text, better):
    assert is_accepted(text)
    assert [is_written(one, NARROW) for one in (text, better)] == [False, True]


@pytest.mark.quick
def test_only_phrases_of_the_given_texts_can_be_in_quotes():
    given = ["  You see a key. Hit it! Run", "The door is open.", "  ", 'a "', "ä", "it's " * 30]
    speller = Speller(Grammar(READABLE, narrow=True), given)
    for text in ["You see a key.", "You", "see", "key.", "is open.", "Hit it! Run", "You see a key. Hit it!", "Run"]:
        assert is_written(f'says("{text}") + 1', speller), text
    for text in ["Y", "ee", "key", "key. Hit it!", "it! Run", "key.The", "key.\n", "you", "ä", 'a \\"', " You", " ", "",
                 "is open. ", "You see a key. Hit", "Run "]:  # fmt: skip
        assert not is_written(f'says("{text}")', speller), text
    assert max(map(len, speller.phrases)) == len("it's " * 20) - 1  # at most 100 characters
    for begun in ['says("', 'says("Th', 'once(says("You ', 'says("key.") + says("is']:
        whole = begun + speller.complete(spelt(begun, speller))
        assert check(whole, READABLE), whole
        assert is_written(whole, speller), whole


@pytest.mark.quick
def test_two_texts_in_quotes_are_parts_of_different_texts():
    speller = Speller(Grammar(READABLE, narrow=True), ["see a key", "see a door", "a door is open"])
    for first, second, ends in [
        ("key", "see a key", False), ("key", "a door", True), ("see a door", "see a", True), ("see", "key", True),
        ("door", "a door", False), ("see", "see a", False), ("open", "door is", False), ("open", "see a door", True),
    ]:  # fmt: skip
        assert is_written(f'says("{first}") + says("{second}")', speller) == ends, (first, second)
    assert spelt('says("key") + says("k', speller) is None  # all that begins so is in "see a key"
    few = Speller(Grammar(READABLE, narrow=True), ["a"])
    assert is_written('says("a") + says("a")', few)  # there is no other


def guide_of(tokeniser, speller=SPELLER):
    return ProgramGuide(speller, tokeniser, "mine", (1,), tokeniser.size)


@pytest.mark.quick
@pytest.mark.parametrize("speller", [SPELLER, Speller(Grammar(READABLE), ["see a key"])], ids=["any text", "texts"])
def test_tokens_are_allowed_exactly_if_their_characters_are(speller):
    guide, chances = guide_of(LetterTokeniser.from_texts(LETTERS), speller), np.random.default_rng(0)
    for _ in range(10):
        spelling = guide.start
        for _ in range(40):
            allowed = guide.allowed(spelling)
            for token, piece in enumerate(guide.pieces):
                after = spelling if piece else None
                for character in piece:
                    after = after and guide.speller.step(after, character)
                assert allowed[token] == (guide.speller.ends(spelling) if token == 1 else after is not None)
            token = int(chances.choice(np.flatnonzero(allowed)))
            if token == 1:
                break
            spelling = guide.after(spelling, token)


@pytest.mark.quick
def test_a_tokeniser_that_cannot_write_programs_is_refused():
    refusal(lambda: guide_of(WordTokeniser.from_texts(["gained ( gold )"])), "'mine' has no tokens", "annotate.model")


@pytest.mark.parametrize("readable", [READABLE, Readable({}, {}, ())], ids=["small", "without names"])
def test_the_grammar_for_servers_defines_what_it_refers_to(readable):
    rules = dict(line.split(" ::= ") for line in as_ebnf(readable).splitlines())
    referred = {
        name for ways in rules.values() for name in re.findall(r"[a-z][\w-]*", re.sub(r'"(\\.|[^"])*"', "", ways))
    }
    assert referred - {*rules} == set()
    assert all(re.fullmatch("[a-z][a-z0-9-]*", name) for name in rules)  # llama.cpp takes no others
    assert all(f'"{name}"' in "".join(rules.values()) for name in readable.entries)
    assert ('"any"' in "".join(rules.values())) == (readable is READABLE)  # without grids, it could not be completed


@pytest.mark.vllm
def test_the_grammar_for_servers_accepts_what_parser_and_checker_accept():
    xgrammar = pytest.importorskip("xgrammar", reason="needs xgrammar, which vLLM has: launch/test.sh --with-vllm")
    info = xgrammar.TokenizerInfo([*LETTERS, "<end>"], stop_token_ids=[len(LETTERS)])
    compiled = xgrammar.GrammarCompiler(info).compile_grammar(xgrammar.Grammar.from_ebnf(as_ebnf(READABLE)))

    def is_taken(text):
        matcher = xgrammar.GrammarMatcher(compiled)
        return all(matcher.accept_token(ord(one) - 32) for one in text) and matcher.accept_token(len(LETTERS))

    accepted = [text for text in map(program_text, range(3_000)) if not re.search(r"\de", text) and is_accepted(text)]
    assert len(accepted) > 1_500
    assert all(map(is_taken, accepted))
    for text in ("glod", "gold and lit", "view", "any(view)", "1 < gold < 3", "gold gold", "says(gold)", "(gold", ""):
        assert not is_accepted(text)
        assert not is_taken(text), text


def programs(first, number):
    """Generated programs that are within the limits, checked."""
    tries = (
        (checked(program_text(1000 * seed + attempt)) for attempt in range(100)) for seed in itertools.count(first)
    )
    return [next(filter(None, of_seed)) for of_seed in itertools.islice(tries, number)]


def checked(text):
    try:
        return check(text, READABLE)
    except ProgramError as error:
        if not re.search(r"at most 64 numbers|levels deep", str(error)):
            raise
        return None


@pytest.mark.parametrize("part", range(4))
def test_the_fast_evaluator_equals_the_slow_one(part):
    size, differs = 200, 0
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
    batch = play(0) | {"game": np.array([[0, 1, 2]])}
    for program in programs(5000, 100):
        again = check(program.text, readable_from(program.uses.record()))
        assert again.observations == program.observations
        np.testing.assert_array_equal(Runner(again).rewards(batch), Runner(program).rewards(batch))


@pytest.mark.quick
def test_terms_add_up_to_the_program_where_no_limit_applies():
    whole, sums = play(0) | {"game": np.array([[0, 1, 2]])}, 0
    for program in programs(7000, 500):
        terms = [*terms_of(program)]
        rewards, *found = (Runner(one).rewards(whole) for one in (program, *terms))
        unlimited = (np.abs([rewards, *found]) < MOST_PAID).all(0)
        np.testing.assert_allclose(np.sum(found, 0)[unlimited], rewards[unlimited], rtol=1e-9, atol=1e-9)
        sums += len(terms) > 1 and unlimited.any()
        for term, one in zip(terms, found, strict=True):  # the text of a term is a program of the same rewards
            np.testing.assert_array_equal(Runner(check(term.text, READABLE)).rewards(whole), one, term.text)
    assert sums > 40
