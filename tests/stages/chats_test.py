"""From recorded conversations with ratings to replies, as docs/conversations.md goes it."""

import json
import os
import random
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from chat_server import ChatServer
from conftest import get_config, refusal, run_stage

import motif_jax
from examples.conversations import judge
from motif_jax import experiment
from motif_jax.annotation.rule_server import completion, user_text
from motif_jax.files import checkpoint_steps
from motif_jax.offline.mdp import token_steps
from motif_jax.offline.recipes import recipe_of
from motif_jax.stages import evaluate, train_values
from motif_jax.stages.train_values.learning import renderer_of
from motif_jax.structs import UserError
from motif_jax.tokens import WordTokeniser
from motif_jax.transcripts.imports import import_episodes, read_trl

ASK, KIND, RUDE = "My parcel has not arrived.", "I am sorry. I will look for it.", "We do not know. Ask somebody else."
FLAGS = {
    "language.width": 32, "language.layers": 1, "language.heads": 2,
    "train_language.max_length": 64, "train_language.batch_size": 2, "train_language.num_epochs": 8,
    "train_language.learning_rate": 5e-3,
    "train_values.max_length": 64, "train_values.batch_size": 1, "train_values.num_epochs": 6,
    "train_values.learning_rate": 3e-3,
}  # fmt: skip


def chats(count=40):
    """Half of the replies are kind, and rated 1; the others are rated -1."""
    rng = random.Random(0)
    for number in range(count):
        told = [{"role": "system", "content": "You help."}] if rng.random() < 0.5 else []
        reply = KIND if number % 2 else RUDE
        messages = [*told, {"role": "user", "content": ASK}, {"role": "assistant", "content": reply}]
        yield {"messages": messages, "reward": 1.0 if number % 2 else -1.0}


def write(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def config_for(file, **changes):
    return get_config("conversations.py", "", **FLAGS | {"transcripts.import_from": str(file)} | changes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chats")
    config = config_for(write(folder / "chats.jsonl", chats()))
    experiment.run(config.to_dict(), folder / "run", None)
    return folder / "run"


@pytest.mark.journey
def test_ratings_decide_what_is_replied(trained):
    values = motif_jax.load_values(trained)
    asked = [ASK] * 16
    kind = [np.mean(["I am sorry" in reply for reply in values.reply(asked, beta, 20)]) for beta in (0, 4)]
    assert kind[0] < 0.8 < 0.9 < kind[1]
    one = values.reply(ASK, beta=4, max_tokens=20, kind="greedy")
    assert one == "I am sorry . I will look for it ."  # tokens that are words come back with spaces between them
    system = [{"role": "system", "content": "You help."}, {"role": "user", "content": ASK}]
    later = [*system, {"role": "assistant", "content": RUDE}, {"role": "user", "content": ASK}]
    several = values.reply([ASK, system, later], beta=4, max_tokens=20, kind="greedy")
    assert several[:2] == [one, one]
    assert isinstance(several[2], str)
    assert values.reply(system, beta=4, max_tokens=20, kind="greedy") == one
    assert values.reply(ASK, max_tokens=3, kind="greedy") == "I am sorry"
    assert values.reply([], max_tokens=3) == []


@pytest.mark.parametrize(("given", "options", "sentence"), [
    (ASK, {"beta": "hot"}, "beta must be a number from 0, not 'hot'"),
    (ASK, {"beta": float("nan")}, "beta must be a number from 0, not nan"),
    (ASK, {"max_tokens": 0}, "max_tokens must be a whole number from 1"),
    (ASK, {"max_tokens": 64}, "texts of 64 tokens are too long for a model that reads 64"),
    (ASK, {"kind": "best"}, "unknown kind 'best'"),
    (ASK, {"temperature": "hot"}, "temperature must be a number"),
    (["a", [{"role": "gpt", "content": "x"}]], {}, "conversation 1: 'role' is 'gpt', not one of"),
    ([{"from": "human", "value": "x"}], {}, "conversation 0: it has no 'role'"),
    ([5], {}, "cannot read conversation 0"),
    ("parcel " * 80, {}, "the last text of conversation 0 has 82 tokens, and the model reads 64"),
])  # fmt: skip
def test_conversations_that_cannot_be_answered_are_refused_in_a_sentence(trained, given, options, sentence):
    with pytest.raises(UserError) as error:
        motif_jax.load_values(trained).reply(given, **{"max_tokens": 20} | options)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_values_are_looked_for_where_they_are(trained, tmp_path):
    last = max(checkpoint_steps(trained / "values/checkpoints"))
    assert motif_jax.load_values(trained / "values", which=last).metadata["recipe"] == "monte_carlo"
    refusal(lambda: motif_jax.load_values(tmp_path), match=f"there are no values in '{tmp_path}'")
    refusal(lambda: motif_jax.load_values(trained, which=7), match="7")


def terminal(trained, *flags, text=""):
    command = [sys.executable, "-m", "motif_jax.policies.chat", str(trained), *flags]
    return subprocess.run(command, input=text, capture_output=True, text=True, env=os.environ, check=False)


@pytest.mark.journey
def test_the_terminal_answers_line_by_line(trained):
    done = terminal(trained, "--beta=4", "--max-tokens=20", "--kind=greedy", "--system=You help.",
                    text=f"{ASK}\n\n{ASK}\n")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "I am sorry . I will look for it .\n" * 2
    done = terminal(trained, "--beta=hot", text=f"{ASK}\n")
    assert done.returncode == 2
    assert done.stderr == "motif_jax: beta must be a number from 0, not 'hot' (reply)\n"


@pytest.mark.journey
def test_a_rating_after_many_tokens_is_not_lost(tmp_path, capsys):
    """The rated turn comes after more tokens than a row has, and this config keeps the end."""
    rows = [{"messages": [{"role": "user", "content": "well " * 90}, *one["messages"]], "reward": one["reward"]}
            for one in chats()]  # fmt: skip
    config = config_for(write(tmp_path / "long.jsonl", rows), train_language__num_epochs=1, train_values__num_epochs=1,
                        train_values__recipe="ilql")  # fmt: skip
    experiment.run(config.to_dict(), tmp_path / "run", ["train_language", "train_values"])
    printed = capsys.readouterr().out
    assert "train_values: 40 of 40 episodes have more than 64 tokens, of which the end is kept" in printed
    assert "learns nothing from" not in printed


@pytest.mark.quick
def test_of_a_chat_that_is_cut_ilql_learns_the_rating_if_the_end_is_kept(tmp_path):
    talk = [{"role": "user", "content": "well " * 100_000}, {"role": "assistant", "content": KIND}]
    rows = [{"messages": talk, "reward": 0.5}, {"messages": talk[1:], "reward": -1.0}]  # nobody asked the second one
    store = import_episodes(read_trl(write(tmp_path / "chats.jsonl", rows)), tmp_path / "run", {})
    parts, learnt = SimpleNamespace(tokeniser=WordTokeniser.from_texts(store.texts())), {}
    for keep in ("end", "start"):
        config = config_for("chats.jsonl", train_values__keep=keep)
        steps = token_steps(renderer_of(config, recipe_of("ilql"), store, parts).rows(np.arange(2), 64))
        learnt[keep] = np.where(steps.mask, steps.reward, 0).sum(1).tolist()
    assert learnt == {"end": [0.5, -1.0], "start": [0.0, -1.0]}


@pytest.mark.quick
def test_conversations_without_ratings_have_no_values(tmp_path, capsys):
    unrated = [{"messages": one["messages"]} for one in chats()]
    config = config_for(write(tmp_path / "chats.jsonl", unrated), train_language__num_epochs=1)
    experiment.run(config.to_dict(), tmp_path / "run", ["train_language"])
    assert "40 of them have no reward but 0" in capsys.readouterr().out
    refusal(lambda: run_stage(train_values, config, tmp_path / "run"), match="none of the 40 episodes has a reward")


@pytest.mark.quick
def test_without_a_world_that_talks_evaluate_says_what_to_do(trained):
    config = config_for("chats.jsonl")
    sentence = "motif_jax.load_values and motif-chat need none"
    refusal(lambda: run_stage(evaluate, config, trained), "--config.env.world", match=sentence)


class KindJudge(ChatServer):
    """Prefers the chat in which the assistant is sorry."""

    def complete(self, body):
        shown = user_text(body).split("--- message")[-2:]
        sorry = ["I am sorry. I will look for it." in chat for chat in shown]
        verdict = "None" if sorry[0] == sorry[1] else 1 + sorry[1]
        return completion(f'("best_message": {verdict})', body, [])


@pytest.mark.journey
def test_a_judge_compares_replies_with_the_recorded_ones(trained, capsys):
    with KindJudge() as server:
        judge.main([str(trained), "--goal=The user wants kind help.", "--backend=server", f"--url={server.url}",
                    "--model=judge", "--mode=reason", "--betas=0,4", "--max-tokens=20"])  # fmt: skip
    first, _, clone, steered = capsys.readouterr().out.splitlines()
    assert first == "the better rated one of two recorded chats is preferred: 100% [100%, 100%] of 3"
    shares = [int(re.match(r"last, [04]: (\d+)% \[", line)[1]) for line in (clone, steered)]
    assert shares[0] <= shares[1]
    assert shares[1] > 50
    assert steered.endswith("; 'I am sorry . I will look for it .'")
