"""Wordle: its rules against a slow twin, sets of words, scripted players against exhaustive search, branches."""

import functools
import math
import random
import statistics
import string

import pytest

from motif_jax.actors.recorder import play_branches, play_episodes
from motif_jax.envs.wordle import world as wordle
from motif_jax.envs.wordle.world import TRIES, Vocabulary
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.envs.worlds import check_world, make_world

pytestmark = pytest.mark.quick
SMALL = wordle.load_vocabulary("small")
# Words of few letters: nearly all of them have one twice.
DICE = random.Random(3)
REPEATS = Vocabulary(tuple(dict.fromkeys("".join(DICE.choices("abel", k=5)) for _ in range(60))))


class Knowledge:
    """The rules as the original states them: what is known of each letter at each place, and of nothing else."""

    UNKNOWN, ABSENT, HERE = range(3)

    def __init__(self):
        self.places = {letter: [self.UNKNOWN] * 5 for letter in string.ascii_lowercase}

    def learn(self, text: str, hidden: str) -> str:
        """What is known after a guess; returns its colours."""
        reply = ""
        for place, letter in enumerate(text):
            if hidden[place] == letter:
                self.places[letter][place] = self.HERE
                reply += "<g>"
            elif letter in hidden:
                self.places[letter][place] = self.ABSENT
                reply += "<y>"
            else:
                self.places[letter] = [self.ABSENT] * 5
                reply += "<b>"
        return reply

    def allows(self, word: str) -> bool:
        for letter, places in self.places.items():
            known = [(at, place == self.HERE) for at, place in enumerate(places) if place != self.UNKNOWN]
            if any((word[at] == letter) != here for at, here in known):
                return False
            if len({*places}) > 1 and letter not in word:  # it is somewhere
                return False
        return True


def members(words: Vocabulary, position: wordle.Position) -> list[str]:
    return [words.words[index] for index in words.members(position.fitting)]


def a_guess(rng: random.Random, words: Vocabulary, position: wordle.Position) -> str:
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(members(words, position))
    if kind < 0.7:
        return rng.choice(words.words)
    if kind < 0.95:  # five letters that are no word, often with one letter several times
        return "".join(rng.choices("abelrst", k=5))
    return rng.choice(("", "abc", "abcdef", "Crane", "cran3", "naïve", "     "))


@pytest.mark.parametrize(("words", "games"), [(SMALL, 100), (REPEATS, 100), (wordle.load_vocabulary("larger"), 8)])
def test_games_are_those_of_a_slow_twin_that_knows_letters(words, games):
    rng = random.Random(0)
    for number in range(games):
        twin, position, tries = Knowledge(), wordle.Position(words, words.everything), 0
        dice, same_dice = random.Random(number), random.Random(number)
        while True:
            fitting = [word for word in words.words if twin.allows(word)]
            assert members(words, position) == fitting
            text = a_guess(rng, words, position)
            tries += 1
            position = position.guess(text, dice)
            colours = position.guesses[-1].colours
            worth = -1.0
            if len(text) == 5 and all(letter in string.ascii_lowercase for letter in text):
                reply = twin.learn(text, fitting[int(same_dice.random() * len(fitting))])
                assert wordle.PATTERNS[colours] == reply
                left = [word for word in words.words if twin.allows(word)]
                worth = 0.0 if left == [text] and reply == "<g>" * 5 else -1.0
            else:
                assert colours == -1
            assert position.reward == worth
            assert position.over == (worth == 0.0 or tries == TRIES)
            if position.over:
                break


@pytest.mark.parametrize("vocabulary", [REPEATS, Vocabulary(REPEATS.words, counted=True)])
def test_colours_of_all_guesses_for_a_word_are_those_of_each_guess(vocabulary):
    for hidden in range(len(vocabulary.words)):
        wanted = [vocabulary.colours(guess)[hidden] for guess in vocabulary.words]
        assert vocabulary.colours_if(hidden).tolist() == wanted


def test_malformed_guesses_cost_a_try_and_get_no_answer():
    game = make_world({"world": "wordle"}).game()
    game.reset(game_seed(1, SeedStream.COLLECT, 0), 0)
    assert {game.step(text) for text in ("crane", "cran", "x\0yzab", "levels and more than sixteen")} == {-1.0}
    assert [turn.is_action for turn in game.turns] == [True, False, True, True, False, True]
    assert game.turns[3].text == "xyzab"  # arrays hold no zeros, so texts have none
    assert game.turns[-1].text == "levels and more "  # cut at 16 bytes
    assert game.info().figures == (4, 2, game.hidden.fitting.bit_count())
    assert game.heard == ""
    assert not game.seen["heard"].any()


# ---- lists of words


def test_a_users_word_list_skips_other_lengths_and_duplicates(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("Crane\n\nsix\nlonger\ncrane\r\n  slate \n")
    world = check_world({"world": "wordle", "options": f'{{"words": "{file}"}}'})
    assert world.vocabulary.words == ("crane", "slate")


# ---- players


def test_optimal_takes_the_guess_with_the_most_information():
    for words in (SMALL, REPEATS):
        fitting = words.fitting("zzaze", int(words.colours("zzaze")[1]))
        inside = words.members(fitting)
        scores = {}
        for index in inside:
            groups = [list(words.colours(words.words[index])[[*inside]]).count(colours) for colours in range(243)]
            scores[index] = math.log(len(inside)) - sum(n * math.log(n) for n in groups if n) / len(inside)
        best = max(scores.values())
        assert words.most_telling(fitting) == tuple(i for i, score in scores.items() if score > best - 1e-9)


@pytest.mark.parametrize(("player", "choose"), [
    ("candidate", SMALL.members),
    ("optimal", SMALL.most_telling),
])  # fmt: skip
def test_players_return_what_exhaustive_search_expects(player, choose):
    @functools.cache
    def value(fitting: int, tries: int) -> float:
        """The expected return of a policy that draws among `choose(fitting)`."""
        if not tries:
            return 0.0
        returns, inside = [], SMALL.members(fitting)
        for index in choose(fitting):
            colours, total = SMALL.colours(SMALL.words[index]), 0.0
            for group in {int(colours[hidden]) for hidden in inside}:
                left = fitting & SMALL.fitting(SMALL.words[index], group)
                rest = 0.0 if group == wordle.ALL_GREEN else -1.0 + value(left, tries - 1)
                total += left.bit_count() / len(inside) * rest
            returns.append(total)
        return statistics.fmean(returns)

    expected = value(SMALL.everything, TRIES)
    returns = [e.episode_return for e in play_episodes(make_world({"world": "wordle"}), player, range(800), seed=5)]
    error = statistics.stdev(returns) / len(returns) ** 0.5
    assert abs(statistics.fmean(returns) - expected) < 4 * error


@pytest.mark.parametrize(("player", "mean"), [
    ("random", -5.54), ("random+candidate", -2.46), ("wrong", -5.86), ("repeat*0.6+candidate*0.4", -3.37),
])  # fmt: skip
def test_players_play_as_well_as_was_measured(player, mean):
    """The specification's means of 4,000 games on other 40 words, within what other words and fewer games change."""
    episodes = play_episodes(make_world({"world": "wordle"}), player, range(400), seed=2)
    assert statistics.fmean(episode.episode_return for episode in episodes) == pytest.approx(mean, abs=0.25)


def test_a_mixture_for_the_whole_episode_is_drawn_once():
    for episode in play_episodes(make_world({"world": "wordle"}), "repeat:0.5,optimal:0.5", range(40), seed=0):
        texts = [turn.text for turn in episode.turns if turn.is_action]
        assert len({*texts}) in (1, len(texts))


# ---- branches


@pytest.mark.differs(
    "ilql", there="branch data does not branch", here="a branch continues from a moment of another game"
)
def test_a_branch_goes_on_from_the_expert_s_moment():
    world = make_world({"world": "wordle"})
    episodes = list(play_branches(world, "random", "repeat", range(8), per_moment=3, seed=4))
    experts = [episode for episode in episodes if not episode.info["branch"]]
    assert [episode.info["episode"] for episode in experts] == [*range(8)]
    for expert in experts:
        mine = [e for e in episodes if e.info["episode"] == expert.info["episode"] and e.info["branch"]]
        texts = [turn.text for turn in expert.turns if turn.is_action]
        assert len(mine) == 3 * len(texts)
        assert [branch.info["branch"] for branch in mine] == [*range(1, len(mine) + 1)]
        for branch in mine:
            shared = branch.info["shared"]
            assert branch.turns[:shared] == expert.turns[:shared]
            written = [turn.text for turn in branch.turns if turn.is_action]
            begun = shared // 2  # a text and its colours each
            assert len(written) <= TRIES
            if begun:  # the other player sees the expert's words
                assert {*written[begun:]} <= {*texts[:begun]}
    # The branches of one moment are different games.
    firsts = {e.turns for e in episodes if not e.info["episode"] and e.info["branch"] and not e.info["shared"]}
    assert len(firsts) > 1
