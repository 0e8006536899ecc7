"""Conversations that others have published, and files that only look like them."""

import csv
import json

import numpy as np
import pytest

from motif_jax.contrib.tweets import Tweet, code_of, find_rows, read_tweets, retrofit
from motif_jax.structs import Episode, Turn, UserError
from motif_jax.transcripts.imports import import_episodes, read_lmrl, read_lmrl_wordle, read_reddit, read_visdial

pytestmark = pytest.mark.quick
GREEN, YELLOW, BLACK, WHITE, ORANGE, BLUE = ["🟩", "🟨", "⬛", "⬜", "🟧", "🟦"]


def refusal(read, *names):
    with pytest.raises(UserError) as caught:
        list(read())
    sentence = str(caught.value)
    assert len(sentence.splitlines()) == 1, sentence
    assert sentence.isprintable(), sentence
    assert len(sentence) < 700
    assert "--config.transcripts.import_from" in sentence
    for name in names:
        assert name in sentence
    return sentence


# ---- LMRL-Gym


def lines(tmp_path, *rows):
    file = tmp_path / "games.jsonl"
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def test_lmrl_rewards_stand_beside_all_texts_or_all_but_the_first(tmp_path):
    sequence = [["Wordle:\n", 0], ["c r a n e\n", 1], ["b b y b g\n", False], ["a b i d e\n", True]]
    wanted = (Turn("Wordle:\n"), Turn("c r a n e\n", -1.0), Turn("b b y b g\n"), Turn("a b i d e\n", 0.0))
    file = lines(tmp_path, {"sequence": sequence, "reward": [0.0, -1.0, 0.0, 0.0], "done": True}, "",
                 {"sequence": sequence, "reward": [-1, 0.0, 0.0], "done": False})  # fmt: skip
    assert list(read_lmrl(file)) == [Episode(wanted, True), Episode(wanted, False)]


def test_lmrl_games_of_wordle_are_written_as_the_world_writes_them(tmp_path):
    """The last but one guess is no word of theirs, and gets an empty line."""
    texts = ["Wordle:\n", "c r a n e\n", "b b y b g\n", "z z\n", "\n", "a b i d e\n", "g g g g g\n"]
    sequence = [[text, float(index % 2)] for index, text in enumerate(texts)]
    file = lines(tmp_path, {"sequence": sequence, "reward": [-1.0, 0.0, -10.0, 0.0, 0.0, 0.0], "done": True})
    turns = (Turn("crane", -1.0), Turn("<b><b><y><b><g>"), Turn("zz", -10.0), Turn("abide", 0.0),
             Turn("<g><g><g><g><g>"))  # fmt: skip
    assert list(read_lmrl_wordle(file)) == [Episode(turns, True)]
    row = {"sequence": [["Wordle:\n", 0], ["c r a n e\n", 1], ["b b x b g\n", 0]], "reward": [0, 0], "done": False}
    refusal(lambda: read_lmrl_wordle(lines(tmp_path, row)), "game 0 of", "'b b x b g", "not five colours")
    refusal(lambda: read_lmrl_wordle(lines(tmp_path, ROW)), "does not begin with 'Wordle:'")


ROW = {"sequence": [["a", 0], ["b", 1]], "reward": [0.0, 1.0], "done": True}


@pytest.mark.parametrize("row", [
    "{", "[]", "NaN", "[" * 5000, "\x00", ROW | {"reward": [1.0, 1.0]}, ROW | {"reward": [0.0, float("nan")]},
    ROW | {"reward": [0.0, 10**400]}, ROW | {"done": 1}, ROW | {"reward": [0.0, 1e39]},
], ids=lambda row: str(row)[:40])  # fmt: skip
def test_lines_that_are_no_episode_are_named(tmp_path, row):
    file = lines(tmp_path, ROW, row)
    refusal(lambda: read_lmrl(file), "line 2 of", str(file))


@pytest.mark.parametrize("what", ["none", "folder", "bytes"])
def test_files_that_cannot_be_read_are_named(tmp_path, what):
    file = tmp_path / what
    if what == "folder":
        file.mkdir()
    elif what == "bytes":
        file.write_bytes(b"\xff\xfe\x80" * 9)
    for read in (read_lmrl, read_visdial, lambda file: read_reddit([file]), read_tweets):
        refusal(lambda read=read: read(file), str(file))


# ---- visual dialogue


def dialogue(rounds=10):
    questions = [{"question": f"is it {index}", "answer": "yes" if index % 2 else "no"} for index in range(rounds)]
    return {"caption": "a cat", "dialog": questions}


def visdial(tmp_path, dialogues, ranks=None):
    file, beside = tmp_path / "dialogues.json", tmp_path / "ranks.json"
    file.write_text(json.dumps(dialogues))
    if ranks is not None:
        beside.write_text(json.dumps(ranks))
    return file, None if ranks is None else beside


def test_a_dialogue_costs_one_per_question_but_the_last(tmp_path):
    (episode,) = read_visdial(*visdial(tmp_path, [dialogue(3)]))
    questions = [Turn("is it 0?", -1.0), Turn("is it 1?", -1.0), Turn("is it 2?", 0.0)]
    answers = [Turn("no"), Turn("yes"), Turn("no")]
    turns = [turn for pair in zip(questions, answers, strict=True) for turn in pair]
    assert episode == Episode((Turn("a cat"), *turns), True)


def test_a_dialogue_ends_when_half_of_what_was_hidden_is_found(tmp_path):
    """0.2 at first, so 0.8 are left; after 0.1 + 0.3 = half of it, the second answer ends it."""
    ranks = [[0.2, 0.1, 0.3, *[0.0] * 8]]
    (episode,) = read_visdial(*visdial(tmp_path, [dialogue()], ranks))
    assert [turn.reward for turn in episode.turns if turn.is_action] == [-1.0, 0.0]
    (whole,) = read_visdial(*visdial(tmp_path, [dialogue()], [[0.2, *[0.01] * 10]]))
    assert whole.episode_return == -9


@pytest.mark.parametrize(("dialogues", "ranks"), [
    ({}, None), ([{"caption": "a", "dialog": [3]}], None), ([dialogue(1)], []), ([dialogue(1)], [[0.1, "x"]]),
    ([dialogue(1)], [[0.1, float("inf")]]), ([{"caption": "a", "dialog": [{"question": "a", "answer": 3}]}], None),
], ids=lambda row: str(row)[:40])  # fmt: skip
def test_files_that_are_no_dialogues_are_refused(tmp_path, dialogues, ranks):
    refusal(lambda: read_visdial(*visdial(tmp_path, dialogues, ranks)))


# ---- comments


def comments(tmp_path, *rows, header=("id", "subreddit", "text", "score", "parent_text"), name="comments.csv"):
    file = tmp_path / name
    with open(file, "w", newline="") as handle:
        csv.writer(handle).writerows([header, *rows])
    return file


def test_comments_answer_others_and_are_rewarded_by_votes(tmp_path):
    one = comments(tmp_path, ("1", "a", 'nice,\n"really"', "3", "what?"), ("2", "a", "bad", "0", "why"))
    two = comments(tmp_path, ("3", "a", "worse", "-7", ""), name="two.csv")
    by_votes = list(read_reddit([one, two]))
    assert by_votes[0] == Episode((Turn("what?"), Turn('nice,\n"really"', 1.0)), True, {"score": 3.0})
    assert [episode.turns[1].reward for episode in by_votes] == [1.0, -1.0, -1.0]


@pytest.mark.parametrize(("rows", "header", "sentence"), [
    ([("a", "b")], ("text", "score", "parent_text"), "has 2 values"),
    ([("a", "many", "b")], ("text", "score", "parent_text"), "the score 'many'"),
    ([("a" * 200_000, "1", "b")], ("text", "score", "parent_text"), "is not CSV"),
])  # fmt: skip
def test_lines_that_are_no_comment_are_named(tmp_path, rows, header, sentence):
    file = comments(tmp_path, *rows, header=header)
    refusal(lambda: read_reddit([file]), str(file), sentence)


# ---- tweets


@pytest.mark.differs(
    "ilql", there="the first six rows of squares of a tweet are a game", here="a tweet with more rows is left out"
)
def test_squares_of_all_colours_are_read_and_other_lines_are_not():
    text = f"Wordle 210 3/6\n\n{BLACK * 5}\n{WHITE}{YELLOW}{BLUE}{GREEN}{ORANGE}\n{GREEN * 5}\n\nnice {GREEN * 5}"
    assert find_rows(text) == ("bbbbb", "byygg", "ggggg")
    assert find_rows(f"{GREEN * 4}\n{GREEN * 6}") == ()
    assert find_rows("\n".join([BLACK * 5] * 7)) == ()  # seven rows are not a game
    assert find_rows("no squares") == ()
    assert find_rows(f"{GREEN * 5}\n{BLACK * 5}") == ()  # it was won before


def test_tweets_are_games_of_a_puzzle(tmp_path):
    file = tmp_path / "tweets.csv"
    with open(file, "w", newline="") as handle:
        csv.writer(handle).writerows([
            ("wordle_id", "tweet_id", "date", "user", "text"), ("210", "1", "", "", f"{BLACK * 5}\n{GREEN * 5}"),
            ("211", "2", "", "", "no game"),
        ])  # fmt: skip
    assert list(read_tweets(file)) == [Tweet(210, ("bbbbb", "ggggg"))]
    file.write_text(file.read_text() + "x,,,,\n")
    refusal(lambda: read_tweets(file), "line 5 of", "'x'")
    file.write_text("1,2\n")
    refusal(lambda: read_tweets(file), "line 1 of", "has 2 values")


def plain_patterns(words):
    """Colours without the rules for letters that occur twice: enough for words without such letters."""

    def row(guess, hidden):
        letters = zip(guess, hidden, strict=True)
        return "".join("g" if a == b else "y" if a in hidden else "b" for a, b in letters)

    return np.array([[code_of(row(guess, hidden)) for hidden in words] for guess in words])


def test_words_are_drawn_that_show_the_colours_of_the_tweet():
    words = ["crane", "abide", "stork", "blimp", "crate"]
    patterns = plain_patterns(words)
    assert code_of("bbbby") == 1
    tweets = [Tweet(1, ("ybgbb", "ggggg")), Tweet(2, ("yyyyy", "ggggg")), Tweet(3, ("gggbg", "ggggg"))]
    games = list(retrofit(tweets, lambda word: patterns[:, word], 5, np.random.default_rng(0), 50))
    for tweet, hidden, guesses in games:
        assert [patterns[guess, hidden] for guess in guesses] == [code_of(row) for row in tweet.rows]
    assert {tweet.puzzle for tweet, *_ in games} == {1, 3}  # no word has all letters of another


# ---- to a store


def test_imported_episodes_keep_their_provenance(tmp_path):
    store = import_episodes(read_lmrl(lines(tmp_path, ROW, ROW)), tmp_path / "transcripts", {"format": "lmrl"})
    assert len(store) == 2
    assert store.record["provenance"] == {"format": "lmrl"}
    refusal(lambda: import_episodes(read_lmrl(lines(tmp_path)), tmp_path / "other", {}), "no episode")


@pytest.mark.parametrize(("turn", "sentence"), [
    (Turn("a", float("nan")), "nan"), (Turn("a", 1e39), "1e+39 is not finite"), (Turn("\ud800", 1.0), "surrogates"),
])  # fmt: skip
def test_episodes_that_a_store_cannot_hold_are_refused_by_their_number(tmp_path, turn, sentence):
    episodes = [Episode((Turn("what?"), turn), True)]
    refusal(lambda: import_episodes(episodes, tmp_path / "transcripts", {}), "episode 0", sentence)
