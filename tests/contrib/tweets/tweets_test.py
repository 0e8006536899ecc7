"""Tweeted games of Wordle."""

import numpy as np
import pytest
from imports_test import comments, refused

from motif_jax.contrib.tweets.reader import Tweet, find_rows, read_tweets, retrofit
from motif_jax.envs.wordle.world import PATTERNS, Vocabulary

pytestmark = pytest.mark.quick
GREEN, YELLOW, BLACK, WHITE, ORANGE, BLUE = ["🟩", "🟨", "⬛", "⬜", "🟧", "🟦"]


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
    header = ("wordle_id", "tweet_id", "date", "user", "text")
    games = ("210", "1", "", "", f"{BLACK * 5}\n{GREEN * 5}"), ("211", "2", "", "", "no game")
    file = comments(tmp_path, *games, header=header)
    assert list(read_tweets(file)) == [Tweet(210, ("bbbbb", "ggggg"))]
    file.write_text(file.read_text() + "x,,,,\n")
    refused(lambda: read_tweets(file), "line 5 of")
    file.write_text("1,2\n")
    refused(lambda: read_tweets(file), "line 1 of")


def test_words_are_drawn_that_show_the_colours_of_the_tweet():
    colours_if = Vocabulary(("crane", "abide", "stork", "blimp", "crate")).colours_if
    tweets = [Tweet(1, ("ybgbb", "ggggg")), Tweet(2, ("yyyyy", "ggggg")), Tweet(3, ("gggbg", "ggggg"))]
    games = list(retrofit(tweets, colours_if, 5, np.random.default_rng(0), 50))
    for tweet, hidden, guesses in games:
        shown = [PATTERNS[colours] for colours in colours_if(hidden)[guesses]]
        assert [text[1::3] for text in shown] == [*tweet.rows]
    assert {tweet.puzzle for tweet, *_ in games} == {1, 3}  # no word has all letters of another


def test_files_that_cannot_be_read_are_named(tmp_path):
    refused(lambda: read_tweets(tmp_path / "none"), str(tmp_path / "none"))
