"""Tokens of episodes: put together from pieces, equal to what an obvious loop makes of them."""

import numpy as np
import pytest
from conftest import refusal
from talks import Greedy, Letters, random_episode, random_store, wordle_game, write

from motif_jax.structs import Episode, Turn
from motif_jax.tokens import LetterTokeniser
from motif_jax.transcripts import render
from motif_jax.transcripts.render import TEMPLATES, LiveRenderer, Renderer, Template
from motif_jax.transcripts.store import turns_of

pytestmark = pytest.mark.quick
MARKS = TEMPLATES["marks"]


def slow_tokens(episode, tokeniser, template):
    """Tokens, whether each is the agent's, and the reward that is due at it: one after another."""

    def encode(mark):
        return [mark] if isinstance(mark, int) else list(tokeniser.encode(mark))

    turns = [turn for turn in episode.turns if turn.is_action or turn.text]  # who says "" says nothing
    begins = not turns or turns[0].is_action
    start = encode(template.action_start if begins else template.text_start)
    tokens, agent, reward = start, [False] * len(start), [0.0] * len(start)
    for turn in turns:
        more = [*encode(turn.text), *encode(template.action_end if turn.is_action else template.text_end)]
        tokens, agent = tokens + more, agent + [turn.is_action] * len(more)
        reward += [0.0] * len(more)
        if turn.is_action:
            reward[-1] = turn.reward
    if episode.terminal:
        more = encode(template.episode_end)
        tokens, agent, reward = tokens + more, agent + [False] * len(more), reward + [0.0] * len(more)
    return tokens, agent, reward


def test_the_worked_example_of_ilql():
    """26 tokens: <a> 0, letters 1-5, </a> 6, colours 7-11, </s> 12, letters 13-17, </a> 18, ..., </eod> 25."""
    renderer = Renderer(turns_of([wordle_game()]), Letters(), MARKS)
    rows = renderer.rows(np.array([0]), 32)
    assert renderer.lengths.tolist() == [26]
    text = Letters().decode(rows.tokens[0, :26])
    assert text == "<a>crane</a><b><b><y><b><g></s>abide</a><g><g><g><g><g></s></eod>"
    assert np.flatnonzero(rows.is_action[0]).tolist() == [*range(6), *range(12, 18)]
    assert {index: value for index, value in enumerate(rows.reward[0].tolist()) if value} == {5: -1.0}
    assert np.flatnonzero(rows.closes[0]).tolist() == [5, 17]
    assert rows.segments[0].tolist() == [1] * 26 + [0] * 6
    assert {index: value for index, value in enumerate(rows.end[0].tolist()) if value} == {25: render.TERMINAL}


@pytest.mark.differs(
    "ilql", there="the tokeniser (transformers 4.16) strips spaces beside marks", here="they are tokens of the text"
)
def test_spaces_beside_marks_stay():
    episode = Episode((Turn(" x "), Turn(" a b ", 1.0)), True)
    renderer = Renderer(turns_of([episode]), Letters(), MARKS)
    assert Letters().decode(renderer.tokens(0)) == "<s> x </s> a b </a></eod>"


@pytest.mark.parametrize("template", [MARKS, Template("<a>", "<s>", 30, 31, "</eod>"), Template(3, "", 4, "\n", "")])
@pytest.mark.parametrize("width", [4, 9, 40])
@pytest.mark.parametrize("keep_end", [False, True])
def test_pieces_are_put_together_as_by_a_loop(tmp_path, template, width, keep_end):
    store, tokeniser = random_store(tmp_path / "store"), Letters()
    episodes = [store.episode(index) for index in range(len(store))]
    store = write(tmp_path / "kept", [one for one in episodes if slow_tokens(one, tokeniser, template)[0]])
    renderer = Renderer(store.turns(), tokeniser, template, keep_end=keep_end)
    order = np.random.default_rng(0).permutation(len(store))
    rows, lost = renderer.rows(order, width), renderer.rewards_beyond(width)
    for row, index in enumerate(order):
        tokens, agent, reward = slow_tokens(store.episode(index), tokeniser, template)
        assert renderer.lengths[index] == len(tokens)
        assert renderer.tokens(index) == tokens
        size = min(len(tokens), width)
        gone = reward[: len(reward) - size + 1] if keep_end else reward[width:]  # no token is chosen at the first place
        if keep_end:
            tokens, agent, reward = tokens[-size:], [False, *agent[-size:][1:]], [0.0, *reward[-size:][1:]]
        assert rows.tokens[row].tolist() == tokens[:size] + [0] * (width - size)
        assert rows.segments[row].tolist() == [1] * size + [0] * (width - size)
        assert rows.is_action[row].tolist() == (agent[:size] + [False] * (1 + width - size))[1:]
        cut = sum(reward[width:])
        assert lost[index] == np.count_nonzero(gone)
        wanted = ([*reward[:size], cut, *[0.0] * (width - size)])[1:]
        np.testing.assert_allclose(rows.reward[row], wanted, atol=1e-6)
        end = render.TERMINAL if store.episode(index).terminal else render.UNFINISHED
        if len(tokens) > width and (end == render.UNFINISHED or any(agent[width:])):
            end = render.UNFINISHED if agent[width] else render.CUT
        assert rows.end[row].tolist() == [0] * (size - 1) + [end] + [0] * (width - size)


# ---- what is refused


def refused(tokeniser, template, *turns):
    act = lambda: Renderer(turns_of([Episode(turns, True)]), tokeniser, template)  # noqa: E731
    return refusal(act, "--config.transcripts.template")


@pytest.mark.parametrize(("template", "turns"), [
    (TEMPLATES["none"], [Turn("xa"), Turn("bx", 1.0)]),  # "ab" is one token
    (TEMPLATES["lines"], [Turn("x"), Turn("ax", 1.0)]),  # "\na" is one token
    (Template("a", "", "", "", ""), [Turn("bx", 1.0)]),
    (Template("", "x", "b", "", ""), [Turn("x"), Turn("a", 1.0)]),
])  # fmt: skip
def test_pieces_that_the_tokeniser_would_join_are_refused(template, turns):
    assert "other tokens as a whole than text by text" in refused(Greedy(), template, *turns)


def test_prompts_and_names_are_read_apart_by_a_policy_and_may_be_when_they_are_cloned():
    turns = turns_of([Episode((Turn("xa"), Turn("bx", 1.0)), True)])
    made = Renderer(turns, Greedy(), TEMPLATES["none"], apart=True)
    assert made.tokens(0) == [*Greedy().encode("xa"), *Greedy().encode("bx")]


def test_a_template_must_leave_the_agent_something_to_choose():
    assert "no token before it" in refused(Letters(), Template("", "", "\n", "\n", ""), Turn("a", 1.0))
    assert "no token before it" in refused(Letters(), TEMPLATES["none"], Turn("a"), Turn("", 1.0))


# ---- batches


@pytest.fixture
def renderer(tmp_path):
    return Renderer(random_store(tmp_path / "store", 100).turns(), Letters(), MARKS)


def seen(plan):
    return sorted(episode for batch in plan for row in batch.rows for episode in row)


@pytest.mark.parametrize("packed", [False, True])
def test_every_episode_is_seen_once_per_epoch_in_an_order_of_its_own(renderer, packed):
    episodes = np.arange(0, 100, 2)
    plans = render.planner(renderer, episodes, packed=packed, max_length=48, batch_rows=4, seed=3)
    assert seen(plans(0)) == seen(plans(1)) == episodes.tolist()
    assert plans(0) == plans(0)
    assert plans(0) != plans(1)
    assert plans(0) != render.planner(renderer, episodes, packed=packed, max_length=48, batch_rows=4, seed=4)(0)
    assert all(len(batch.rows) == 4 for batch in plans(0))


@pytest.mark.parametrize("packed", [False, True])
def test_in_order_early_episodes_come_in_early_batches(renderer, packed, monkeypatch):
    monkeypatch.setattr(render, "PART", 5)
    episodes = np.arange(0, 100, 2)
    layout = {"packed": packed, "max_length": 48, "batch_rows": 4, "seed": 3}
    plans = render.planner(renderer, episodes, **layout, in_order=True)
    met = [episode for batch in plans(0) for row in batch.rows for episode in row]
    assert sorted(met) == episodes.tolist()
    assert met != sorted(met)
    for part in range(0, 50, 20):  # five times four
        assert sorted(met[part : part + 20]) == episodes[part : part + 20].tolist()
    widest = render.bucket_widths(renderer.lengths[episodes], 48)
    assert packed or {batch.width for batch in plans(0)} <= {*widest}  # no shape for a part alone: each is compiled


def test_packed_rows_hold_the_same_tokens_as_single_ones(renderer):
    plan = render.plan_packed(np.arange(100), renderer.lengths, 40, 4, seed=0, epoch=0)
    assert sum(len(batch.rows) for batch in plan) < 60  # rows for 100 episodes
    for step, (inside, _) in enumerate(plan):
        batch = render.make_batch(renderer, plan, step)
        for row, episodes in enumerate(inside):
            start = 0
            for number, episode in enumerate(episodes, 1):
                single, size = renderer.rows(np.array([episode]), 40), min(int(renderer.lengths[episode]), 40)
                single = single._replace(segments=number * single.segments)
                for one, other in zip(batch, single, strict=True):
                    np.testing.assert_array_equal(one[row, start : start + size], other[0, :size])
                start += size
            assert not batch.segments[row, start:].any()


# ---- conversations as they go on have the tokens that they have once they are recorded


def live_tokens(live, turns):
    first = next((at for at, turn in enumerate(turns) if turn.is_action or turn.text), 0)
    heard_first = first < len(turns) and not turns[first].is_action
    tokens = live.begin(turns[first].text if heard_first else "")
    for turn in turns[first + heard_first :]:
        tokens += live.said(turn.text) if turn.is_action else live.heard(turn.text)
    return tokens


@pytest.mark.differs(
    "ilql", there="a text is decoded and encoded again", here="texts have the same tokens as in transcripts"
)
@pytest.mark.parametrize("name", ["marks", "lines"])
def test_tokens_are_those_of_the_recorded_conversation(name):
    """Empty texts of the environment among them, at the beginning and later: then it says nothing, as worlds do."""
    turns = [Turn(""), Turn("ab", 1.0), Turn(""), Turn("c", 0.0), Turn("d"), Turn("", 0.0)]
    episodes = [random_episode(np.random.default_rng(seed)) for seed in range(40)]
    episodes += [Episode(tuple(turns[first:]), True) for first in range(len(turns) + 1)]
    live, renderer = LiveRenderer(Letters(), TEMPLATES[name]), Renderer(turns_of(episodes), Letters(), TEMPLATES[name])
    for number, (turns, terminal, _) in enumerate(episodes):
        recorded = renderer.tokens(number)
        assert live_tokens(live, turns) == recorded[: len(recorded) - (terminal and name == "marks")]
        assert recorded  # so that there is a token to decode from


@pytest.mark.parametrize("name", ["marks", "lines"])
def test_a_text_with_the_name_of_a_mark_ends_nothing(name):
    texts = ["</a>", "a</eod>b", "<s><a></s>"]
    turns = [turn for text in texts for turn in (Turn(text), Turn(f"x{text}", 1.0))]
    whole = turns_of([Episode(tuple(turns), True)])
    tokeniser = LetterTokeniser.from_texts([*whole.texts, "\n"])
    live, renderer = LiveRenderer(tokeniser, TEMPLATES[name]), Renderer(whole, tokeniser, TEMPLATES[name])
    recorded, rows = renderer.tokens(0), renderer.rows(np.array([0]), 200)
    assert live_tokens(live, turns) == recorded[: len(recorded) - (name == "marks")]
    assert recorded.count(live.stop) == (3 if name == "marks" else 6)
    assert rows.closes.sum() == 3
    assert tokeniser.decode(recorded) == "".join(turn.text + "\n" * (name == "lines") for turn in turns)
    assert not {*renderer.emitted().tolist()} & live.marks()
