from types import SimpleNamespace

import jax
import numpy as np
import pytest
from slow_terms import head, hidden_of
from tiny_decoder import LANGUAGE, VOCABULARY, new_params, random_rows
from tiny_decoder import WIDTH as HIDDEN
from tiny_writer import make_heads

from motif_jax.actors.recorder import play_branches
from motif_jax.envs.worlds import make_world
from motif_jax.experiment import defaults
from motif_jax.offline import mdp
from motif_jax.offline.rankings import Chosen, best_texts, make_readers, ranks, read_texts
from motif_jax.offline.recipes import recipe_of
from motif_jax.offline.update import OfflineState
from motif_jax.stages.train_values.learning import renderer_of
from motif_jax.tokens import LetterTokeniser
from motif_jax.transcripts.render import TEMPLATES, Renderer
from motif_jax.transcripts.store import TranscriptWriter

pytestmark = pytest.mark.quick
WIDTH = 76


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    writer = TranscriptWriter()
    # With few words left, a branch that takes one that fits often says what the expert said.
    player = "wrong*0.5+candidate*0.5"
    games = list(play_branches(make_world({"world": "wordle"}), "optimal", player, range(12), seed=0))
    for game in games:
        writer.add(game)
    store = writer.write(tmp_path_factory.mktemp("store") / "transcripts", {})
    tokeniser = LetterTokeniser.from_texts(store.texts())
    return store, Renderer(store.turns(), tokeniser, TEMPLATES["marks"]), tokeniser, games


@pytest.mark.differs(
    "ilql",
    there="ranks compare texts in moments drawn at random, also equal texts",
    here="each branch is compared once, if its text is not the expert's",
)
@pytest.mark.differs("ilql", there="in ranks, an equal Q counts against the expert", here="it counts half")
def test_ranks_compare_the_expert_with_its_branches_in_the_same_moment(recorded):
    store, renderer, tokeniser, games = recorded
    wanted, equal = {}, 0  # number of the text -> pairs of texts
    for game in games:
        if not game.info["branch"]:
            expert = game
            continue
        shared = game.info["shared"]
        number = sum(turn.is_action for turn in game.turns[:shared])
        said = expert.turns[shared].text, game.turns[shared].text
        if said[0] != said[1]:
            wanted.setdefault(str(number + 1), []).append(said)
        equal += said[0] == said[1]  # no pair
    assert equal

    def look(rows):
        """Q of a token is its id: a later letter is better, the mark at the end is the same for all."""
        q = np.roll(np.asarray(rows.tokens), -1, 1).astype(float)
        return Chosen(q, np.zeros_like(q))

    ranked = ranks({"online": look}, renderer, store, WIDTH)
    assert ranked.keys() == wanted.keys()
    for number, pairs in wanted.items():
        assert ranked[number]["pairs"] == len(pairs)
        for place in range(5):
            ids = [[tokeniser.encode(text[place])[0] for text in pair] for pair in pairs]
            share = np.mean([0.5 * (one == other) + (one > other) for one, other in ids])
            assert ranked[number]["online"][place] == pytest.approx(share, abs=1e-4)
        assert ranked[number]["online"][5] == 0.5


@pytest.mark.parametrize(("recipe", "discount"), [("monte_carlo", 0.5), ("decision_transformer", 1.0)])
def test_returns_of_rows_that_are_cut_are_those_of_whole_rows(recorded, recipe, discount):
    store, _, tokeniser, _ = recorded
    config = defaults()
    config.train_values.recipe, config.train_values.discount, config.transcripts.template = recipe, 0.5, "marks"
    renderer = renderer_of(config, recipe_of(recipe), store, SimpleNamespace(tokeniser=tokeniser))
    whole, cut = (mdp.returns_to_go(renderer.rows(np.arange(12), width), discount) for width in (WIDTH, 20))
    np.testing.assert_allclose(cut, whole[:, :20], atol=1e-5)
    assert (whole[:, 0] != 0).any()


@pytest.mark.differs(
    "ilql",
    there="`top_advantage_n_grams` lists the best and worst n-grams, or texts, by their mean over all occurrences",
    here="the list has the best whole texts, each with the text before it",
)
@pytest.mark.differs(
    "ilql",
    there="the best texts have the highest sum of Q - V, without the end mark",
    here="the highest mean, with the end mark",
)
def test_the_best_texts_are_those_with_the_highest_mean_advantage(recorded):
    store, renderer, tokeniser, games = recorded

    def look(rows):
        tokens = np.roll(np.asarray(rows.tokens), -1, 1).astype(float)
        return Chosen(tokens, np.ones_like(tokens))

    top = best_texts(look, renderer, store, np.arange(len(store)), WIDTH)
    assert len({(one["text"], one["before"]) for one in top}) == len(top) == 20
    said = {turn.text for game in games for turn in game.turns if turn.is_action}
    assert {one["text"] for one in top} <= said
    # The mean over the tokens that were chosen, the end mark included, is without the last position's.
    assert top[0]["text"] == max(said, key=lambda text: sum(tokeniser.encode(text)))
    values = [one["advantage"] for one in top]
    assert values == sorted(values, reverse=True)


def test_texts_of_rows_with_the_end_of_an_episode_keep_their_numbers(recorded):
    """The first one in the row may be torn; the last one is always there."""
    store, _, tokeniser, games = recorded
    renderer = Renderer(store.turns(), tokeniser, TEMPLATES["marks"], keep_end=True)

    def look(rows):
        tokens = np.roll(np.asarray(rows.tokens), -1, 1)
        return Chosen(tokens, tokens)

    read, torn = list(read_texts(look, renderer, np.arange(len(store)), 22)), 0
    assert len(read) == len(games)
    for game, texts in zip(games, read, strict=True):
        said = [[*tokeniser.encode(turn.text), tokeniser.end_id] for turn in game.turns if turn.is_action]
        assert [*texts] == [*range(len(said) - len(texts), len(said))]
        for number, text in texts.items():
            assert text.q.tolist() == said[number][-len(text.q) :]
            torn += len(text.q) < len(said[number])
    assert torn


@pytest.mark.parametrize("kind", ["online", "target"])
def test_values_are_read_with_the_trunk_that_they_were_learnt_on(kind):
    """Token by token, where what is learnt and its target differ."""
    trunks, rows = {"learnt": new_params(1), "target": new_params(2)}, random_rows(3, packed=True)
    q = {name: make_heads(seed, VOCABULARY, 2, HIDDEN) for seed, name in enumerate(trunks)}
    learnt = {"trunk": trunks["learnt"], "q": q["learnt"], "v": make_heads(5, 1, 1, HIDDEN)[0], "policy": {}}
    state = OfflineState(learnt, {"trunk": trunks["target"], "q": q["target"]}, (), 0)
    low, high = (-1.1, -0.9) if kind == "target" else (-np.inf, np.inf)
    read = make_readers(LANGUAGE, state, (-1.1, -0.9))[kind](rows)
    learnt, q = jax.device_get((learnt, q))
    hidden = {name: hidden_of(params, rows) for name, params in trunks.items()}
    of_q = "target" if kind == "target" else "learnt"
    seen = set()
    for row, at in zip(*np.nonzero(rows.is_action), strict=True):
        token = rows.tokens[row, at + 1]
        least = min(head(one, hidden[of_q][row, at])[token] for one in q[of_q])
        assert read.q[row, at] == pytest.approx(np.clip(least, low, high), abs=1e-4)
        assert read.v[row, at] == pytest.approx(head(learnt["v"], hidden["learnt"][row, at])[0], abs=1e-4)
        seen.add((least < -1.1, least > -0.9))
    assert len(seen) == 3  # below, within and above the bounds of the target
