"""The grammar of reward programs, what holds a model to it, and their rewards beside a slow interpreter."""

import functools
import itertools
import random
import re

import numpy as np
import pytest
from code_attacks_test import mutations
from code_slow import GAMES, SMALL_WORLD, SlowGame, cut_in_pieces, play, program_text
from conftest import ROOT, refusal

from motif_jax.contrib.code_rewards import grammar
from motif_jax.contrib.code_rewards.grammar import ProgramError, as_ebnf, check, terms_of
from motif_jax.contrib.code_rewards.guide import ProgramGuide
from motif_jax.contrib.code_rewards.names import Readable, find_readable, readable_from
from motif_jax.contrib.code_rewards.running import MOST_PAID, Runner
from motif_jax.tokens import HubTokeniser, LetterTokeniser, WordTokeniser

llguidance = pytest.importorskip("llguidance", reason="needs llguidance: pip install motif_jax[language]")

READABLE, NOTHING = find_readable(SMALL_WORLD), Readable({}, {}, ())
LETTERS = [f"{chr(code)}" for code in range(32, 127)]
NUMBERS = itertools.count(1)  # of programs
TOO_MUCH = "at most 64 numbers|levels deep"  # what a grammar does not count


def error_of(text, readable=READABLE):
    try:
        check(text, readable)
    except ProgramError as error:
        return str(error)
    return ""


def is_accepted(text, readable=READABLE):
    return not error_of(text, readable)


@functools.cache
def matcher_of(narrow, is_empty=False):
    from llguidance.gbnf_to_lark import any_to_lark

    text = any_to_lark(as_ebnf(NOTHING if is_empty else READABLE, narrow))
    return llguidance.LLMatcher(llguidance.LLTokenizer("byte"), text)


def is_in(text, narrow, is_empty=False):
    """Whether a text is in a grammar, as the library reads it."""
    matcher = matcher_of(narrow, is_empty)
    matcher.reset()
    return matcher.try_consume_tokens([*text.encode()]) == len(text) and matcher.is_accepting()


def guide_of(tokeniser=None, texts=()):
    tokeniser = tokeniser or LetterTokeniser.from_texts(LETTERS)
    guide = ProgramGuide(READABLE, tokeniser, (1,), tokeniser.size + 3, "mine")
    guide.begin(texts)
    return guide


def is_written(text, guide, tokeniser=None):
    """Whether its tokens are allowed one after the other, and then an end."""
    tokens = (tokeniser or LetterTokeniser.from_texts(LETTERS)).encode(text)
    number = next(NUMBERS)
    return all(guide.allowed(number, tokens[:place])[token] for place, token in enumerate([*tokens, 1]))


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


def test_the_grammar_has_the_programs_that_are_accepted_and_no_others():
    accepted, unsaid = 0, f"{TOO_MUCH}|that changes|of a moment, which is no constant"  # of the wide grammar
    for text in [*REFUSED, *texts(80)]:
        error = error_of(text)
        accepted += not error
        assert re.search(unsaid, error) or is_in(text, narrow=False) == (not error), text
        assert not (error and is_in(text, narrow=True)), text
    assert 40 < accepted < 120


def byte_pairs():
    """A tokeniser whose tokens begin and end within words of the language."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install motif_jax[language]")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<pad>", "</s>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator(map(program_text, range(300)), trainer)
    return HubTokeniser(made.to_str())


@pytest.mark.parametrize("kind", ["letters", "pairs of bytes"])
def test_a_program_of_the_grammar_is_allowed_token_by_token(kind):
    tokeniser = byte_pairs() if kind == "pairs of bytes" else LetterTokeniser.from_texts(LETTERS)
    guide, known = guide_of(tokeniser), [text for text in texts(150) if is_in(text, narrow=True)]
    assert len(known) > 15
    for text in known:
        assert is_written(text, guide, tokeniser), text
    for text in REFUSED:
        assert not is_written(text, guide, tokeniser), text


@pytest.mark.parametrize("kind", ["letters", "pairs of bytes"])
@pytest.mark.parametrize("quotes", [(), ("see a key", "The door is open. Go on!")], ids=["any text", "phrases"])
def test_what_is_begun_at_random_becomes_a_program(kind, quotes):
    tokeniser = byte_pairs() if kind == "pairs of bytes" else LetterTokeniser.from_texts(LETTERS)
    guide, chances, longest = guide_of(tokeniser, quotes), random.Random(0), 0
    first = [*map(guide.pieces.index, ')",1')]  # these come first where a program is to end
    for number in range(25):
        tokens, most = list[int](), chances.randint(0, 60)
        while True:
            allowed = guide.allowed(number, tokens)
            if allowed[1] and len(tokens) >= most:
                break
            allowed[1] = False
            ways = [token for token in first if allowed[token]] if len(tokens) >= most else []
            ways = ways[:1] or np.flatnonzero(allowed).tolist()
            if not ways:
                break
            tokens.append(chances.choice(ways))
            assert len(tokens) < 600
        longest = max(longest, len(tokens))
        assert re.search(f"^$|{TOO_MUCH}", error_of(guide.text(tokens))), guide.text(tokens)
    assert longest > 60


@pytest.mark.parametrize(("longest", "longer"), [
    ("+".join(["gold"] * 32), "+".join(["gold"] * 33)),  # 63 nodes and 65
    ("-" + "+".join(["gold"] * 32), "--" + "+".join(["gold"] * 32)),  # 64, 65
    ("(" * 12 + "gold" + ")" * 12, "(" * 13 + "gold" + ")" * 13),
    ("-" * 11 + "gold", "-" * 12 + "gold"),  # levels
    ("1-(1-(1-(1-(1-(1-(1-(1-(1-(1-(1-gold))))))))))", "1-(1-(1-(1-(1-(1-(1-(1-(1-(1-(1-(1-gold)))))))))))"),
])  # fmt: skip
def test_the_limits_are_exact(longest, longer):
    assert (grammar.MOST_NODES, grammar.MOST_LEVELS) == (64, 12)
    assert is_accepted(longest)
    assert not is_accepted(longer)


@pytest.mark.quick
@pytest.mark.parametrize(("text", "narrow"), [
    ("+".join(["gold"] * 8), True), ("+".join(["gold"] * 9), False), ("abs(" + "+".join(["gold"] * 3) + ")", True),
    ("abs(" + "+".join(["gold"] * 4) + ")", False), ("abs(" * 5 + "gold" + ")" * 5, True),
    ("abs(" * 6 + "gold" + ")" * 6, False), ("-" * 5 + "gold", True), ("-" * 6 + "gold", False),
])  # fmt: skip
def test_a_program_of_the_narrow_grammar_comes_to_an_end(text, narrow):
    assert is_accepted(text)
    assert is_in(text, narrow=False)
    assert is_in(text, narrow=True) == narrow


@pytest.mark.quick
def test_a_world_without_names_has_programs_of_numbers_and_captions():
    for text, is_program in [("1 + 2", True), ('says("x")', True), ("still()", False), ("gained(", False)]:
        assert is_in(text, narrow=False, is_empty=True) == is_program == is_accepted(text, NOTHING), text
    assert [is_in(text, narrow=True, is_empty=True) for text in ("1 + 2", 'once(says("x"))')] == [False, True]


@pytest.mark.quick
@pytest.mark.parametrize(("text", "better"), [
    ("1 + gold + 2 * 3", "1 + gold + 6"), ("gold + ((gold + 1))", "gold + (gold + 1)"), ("(gold)", "gold"),
    ("abs((gold))", "abs(gold)"), ("gold > abs(1)", "gold > 1"), ("gold + --1", "gold + 1"),
    ("gold * (2 - 1)", "gold * 2"), ("gold + max(1, 2)", "gold + max(gold, 2)"),
    ('gold + (mission == "red")', 'gold + says(mission, "red")'), ("-1", "-1 * gained(gold)"),
    ("once(rose(lit))", "once(lit)"), ("record(1 + abs(gained(gold)))", "record(1 + abs(gold))"),
    ('once(says("a") + says("b") > 0)', 'once(says("a") or says("b"))'), ("gained(gold + lit)", "gained(gold + level)"),
])  # fmt: skip
def test_a_narrow_grammar_has_nothing_without_meaning(text, better):
    assert is_accepted(text)
    assert [is_in(one, narrow=True) for one in (text, better)] == [False, True]


@pytest.mark.quick
def test_only_phrases_of_the_given_texts_can_be_in_quotes():
    guide = guide_of(texts=["  You see a key. Hit it! Run", "The door is open.", "  ", 'a "', "ä", "it's " * 30])
    for text in ["You see a key.", "You", "see", "key.", "is open.", "Hit it! Run", "You see a key. Hit it!", "Run"]:
        assert is_written(f'says("{text}") + 1', guide), text
    for text in ["Y", "ee", "key", "key. Hit it!", "it! Run", "key.The", "key.\n", "you", "ä", 'a \\"', " You", " ", "",
                 "is open. ", "You see a key. Hit", "Run "]:  # fmt: skip
        assert not is_written(f'says("{text}")', guide), text
    assert max(map(len, guide.phrases)) == len("it's " * 20) - 1  # at most 100 characters


@pytest.mark.quick
def test_two_texts_in_quotes_are_parts_of_different_texts():
    guide = guide_of(texts=["see a key", "see a door", "a door is open"])
    for first, second, ends in [
        ("key", "see a key", False), ("key", "a door", True), ("see a door", "see a", True), ("see", "key", True),
        ("door", "a door", False), ("see", "see a", False), ("open", "door is", False), ("open", "see a door", True),
    ]:  # fmt: skip
        assert is_written(f'says("{first}") + says("{second}")', guide) == ends, (first, second)
    tokens = LetterTokeniser.from_texts(LETTERS).encode('says("key") + says("k')
    masks = [guide.allowed(0, tokens[:place]) for place in range(len(tokens))]
    assert not masks[-1][tokens[-1]]  # all that begins so is in "see a key"
    assert is_written('says("a") + says("a")', guide_of(texts=["a"]))  # there is no other


@pytest.mark.quick
def test_a_tokeniser_that_cannot_write_programs_is_refused():
    tokeniser = WordTokeniser.from_texts(["gained ( gold )"])
    refusal(lambda: guide_of(tokeniser), "'mine' has no tokens", "annotate.model")


@pytest.mark.parametrize("narrow", [False, True], ids=["servers", "narrow"])
@pytest.mark.parametrize("readable", [READABLE, NOTHING], ids=["small", "without names"])
def test_the_grammar_defines_what_it_refers_to(readable, narrow):
    rules = dict(line.split(" ::= ") for line in as_ebnf(readable, narrow).splitlines())
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
