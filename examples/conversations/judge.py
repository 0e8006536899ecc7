"""Which beta, without a simulator? A judge compares written replies to held-out chats with the recorded ones.

    python examples/conversations/judge.py runs/chats --model=smollm2 --goal="The user wants kind and quick help."
    python examples/conversations/judge.py runs/chats --backend=server --url=http://127.0.0.1:8000/v1 \\
        --model=NAME --mode=reason --goal="The user wants kind and quick help." --betas=0,1,4,16 --which=72,80

The chats are those that `train_values` held out. The first line says whether the judge finds, of two recorded chats,
the better rated one: a judge that does not is no judge of this. Then for each beta: how often it prefers the written
reply, with a 95 % interval over chats; 50 % is as good as the recorded ones. Each question is asked in both orders.
The prompts are the TOML files beside this one: compare.toml, and rate.toml for small models (--mode=rate, the default).
"""

import argparse
import random
import re
import sys
from pathlib import Path

import numpy as np

import motif_jax
from motif_jax.annotation.annotator import AskingCounts, Question
from motif_jax.annotation.backends import check_backend, make_judge, open_judge
from motif_jax.annotation.section import AnnotateSection, ServerSection
from motif_jax.envs.texts import read_texts
from motif_jax.offline.recipes import recipe_of
from motif_jax.run import from_plain
from motif_jax.stages.offline import choose_episodes
from motif_jax.stages.train_values import ValuesSection
from motif_jax.structs import UserError
from motif_jax.transcripts.store import Transcripts

SHOWN = 2_000  # characters of a chat that the judge reads, from its end


def held_out(workdir, metadata, most):
    """The chats that training did not learn from, up to the agent's last text: (messages, that text, its rating)."""
    config = metadata["config"]
    store = Transcripts(Path(config["transcripts"]["path"] or Path(workdir, "transcripts")))
    section, recipe = from_plain(ValuesSection, config["train_values"]), recipe_of(metadata["recipe"])
    chats = []
    for number in choose_episodes(section, recipe, store, config["seed"])[1].tolist():
        turns = store.episode(number).turns
        last = max((at for at, turn in enumerate(turns) if turn.is_action), default=0)
        if last:  # the agent's first text answers nobody
            roles = [("assistant" if turn.is_action else "user", turn.text) for turn in turns[:last]]
            talk = [{"role": role, "content": text} for role, text in roles]
            chats.append((talk, turns[last].text, sum(turn.reward or 0.0 for turn in turns)))
    random.Random(0).shuffle(chats)
    return chats[:most]


def shown(talk, reply):
    """A chat as the judge reads it, without the spaces before marks that models of words write."""
    turns = [*talk, {"role": "assistant", "content": reply}]
    text = "\n".join(f"{one['role'].capitalize()}: {one['content']}" for one in turns)
    return re.sub(r" +([.,;:!?])", r"\1", text)[-SHOWN:]


def rated_pairs(chats):
    """As many pairs of chats as there are chats, drawn, each the worse rated one first."""
    pairs = [(a, b) for a in chats for b in chats if a[2] < b[2]]
    return [(shown(*a[:2]), shown(*b[:2])) for a, b in random.Random(0).sample(pairs, min(len(chats), len(pairs)))]


def preferred(asking, pairs):
    """P(the judge prefers the second) for each pair of texts, the mean of both orders; NaN without a verdict. [N]"""
    said = {}
    pairs = [Question(*pair) for pair in pairs]
    asking.ask(
        [*dict.fromkeys([*pairs, *(pair.turned for pair in pairs)])], lambda one: said.update({one.question: one})
    )
    either = [(said[pair].answer.yes, said[pair.turned].answer.yes) for pair in pairs]
    odds = [np.nan if None in yes else (yes[0] + 1 - yes[1]) / 2 for yes in either]
    return np.round(odds, 6)  # of equal texts exactly one half


def line(name, odds, more=""):
    """A share with its interval over chats."""
    odds = odds[np.isfinite(odds)]
    wins = np.where(odds == 0.5, 0.5, odds > 0.5)
    if not len(wins):
        return f"{name}: no pair was asked about, or the judge gave no verdict"
    drawn = np.random.default_rng(0).integers(len(wins), size=(5_000, len(wins)))
    low, high = np.quantile(wins[drawn].mean(1), (0.025, 0.975))
    return f"{name}: {wins.mean():.0%} [{low:.0%}, {high:.0%}] of {len(wins)}{more}"


def numbers(text):
    """The numbers of a list with commas."""
    return [float(number) for number in text.split(",")]


def main(arguments=None):
    """Prints the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir")
    parser.add_argument("--goal", required=True, help="a sentence: what the user wants")
    parser.add_argument("--backend", default="model", help="as --config.annotate.backend")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--url", default=ServerSection().url)
    parser.add_argument("--mode", default="rate", help="rate; score or reason for larger models")
    parser.add_argument("--betas", type=numbers, default="0,1,4,16")
    parser.add_argument("--which", default="last", help="checkpoints")
    parser.add_argument("--chats", type=int, default=100, help="at most")
    parser.add_argument("--max-tokens", type=int, default=64)
    given = parser.parse_args(arguments)
    try:
        compare(given)
    except UserError as error:
        sys.exit(str(error))


def compare(given):
    """Asks the judge about replies of all betas and checkpoints."""
    values = {which: motif_jax.load_values(given.workdir, which=which) for which in given.which.split(",")}

    file = Path(__file__).with_name("rate.toml" if given.mode == "rate" else "compare.toml")
    section = AnnotateSection(backend=given.backend, model=given.model, mode=given.mode, goal=given.goal,
                              prompt_file=str(file), server=ServerSection(url=given.url))  # fmt: skip
    judge = make_judge(section, read_texts("a chat of a user with an assistant", None), seed=0)
    check_backend(judge)
    asking = open_judge(judge, None, AskingCounts("judge"))
    chats = held_out(given.workdir, motif_jax.load_values(given.workdir).metadata, given.chats)
    print(line("the better rated one of two recorded chats is preferred", preferred(asking, rated_pairs(chats))))
    print("replies are preferred to the recorded ones, by checkpoint and beta:")
    for which in values:
        for beta in given.betas:
            replies = values[which].reply([talk for talk, *_ in chats], beta=beta, max_tokens=given.max_tokens)
            pairs = [(shown(talk, old), shown(talk, new)) for (talk, old, _), new in zip(chats, replies, strict=True)]
            print(line(f"{which}, {beta:g}", preferred(asking, pairs), f"; {replies[0][:40]!r}"))
    asking.close()


if __name__ == "__main__":
    main()
