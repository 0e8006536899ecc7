"""The report's first screen: the goal, and the result compared with random play; and the part on the machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from motif_jax.annotation.prompts import is_sentence
from motif_jax.envs.worlds import TABLE as GAME
from motif_jax.names import ONLINE_REWARDS, find
from motif_jax.pages.blocks import folded, table
from motif_jax.pages.charts import bars
from motif_jax.pages.formats import Interval, esc, exact
from motif_jax.rewards.choice import LEARNT, ONLINE, SOURCES, WRITTEN, parse_sources, program_title
from motif_jax.stages.report.data import warnings
from motif_jax.stages.report.figures import compared, words
from motif_jax.stages.report.parts import EvaluatedPlayer, Facts, Found
from motif_jax.stages.train_reward.page import percent, preferences, verdict

SHOWN = 5
GAME_REWARD = "the game"  # the title of the game's own reward, beside those of SOURCES
OF_NETHACK = {  # values of the config that only NetHack uses
    "env": tuple(GAME.keys() - {"world", "options", "max_episode_steps"}), "collect": ("save_screen", "save_glyphs"),
    "reward": ("blstats", "crop", "glyphs"),
}  # fmt: skip


def first_screen(found: Found, written: Sequence[str] = ()) -> list[str]:
    """The head of the page as HTML: title, one paragraph, and the agent's figures beside those of random play.

    `written`: sentences about a policy that writes texts, instead of those about one that chooses actions.
    """
    beside = "" if written else _beside_chance(found)
    sentences = " ".join([*warnings(found), *(written or [*_asked(found), *_trained(found), *_played(found)])])
    return [
        f'<header class="hero{" wide" if beside else ""}"><div><p class="eyebrow">{esc(eyebrow(found))}</p>'
        f'<h1>{title(found)}</h1><p class="lead">{sentences}</p></div>{beside}</header>'
    ]


def eyebrow(found: Found) -> str:
    """The line above the title: task, name of the workdir, date."""
    dates = [part.made for part in (found.training, found.learnt, found.pairs) if part]
    task = task_of(found)
    return " · ".join(filter(None, ("motif_jax", task and f"task {task}", found.name, *dates[:1])))


def task_of(found: Found) -> str:
    """The name of the task that is played; "" if it is not known."""
    if found.training and found.training.task:
        return found.training.task
    if found.players:
        return found.players[0].task
    return found.pairs.facts.get("task", "") if found.pairs else ""


def title(found: Found) -> str:
    """The title of the page, as HTML."""
    goal = found.goal if found.goal not in ("", "zeroknowledge") else ""
    if found.own and found.own.decoding:
        return f"A language model that learnt from recorded games of {esc(task_of(found))}"
    if found.is_empty and (found.path / WRITTEN).is_dir():
        return "A reward, written as a program"
    rewards = list(rewards_of(found.training.settings)) if found.training else []
    if rewards == [GAME_REWARD]:
        return f"An agent that learnt by playing {esc(task_of(found))}"
    preferred = SOURCES[LEARNT].words in rewards or not rewards  # otherwise the preferences do not reach the agent
    if rewards and not (preferred and (goal or len(rewards) == 1)):
        return f"An agent trained on {listed(rewards)}"
    subject = "An agent" if found.training else "A reward" if found.learnt else "Preferences" if goal else "A dataset"
    if not goal:
        return f"{subject} trained on learnt preferences" if found.training else f"{subject} of moments of a game"
    if goal == "defaultgoal":
        own = ":" in task_of(found)  # a game of the user's, which may not have scores
        return f"{subject} for {'progress' if own else 'a high score'}"
    return f"{subject} with the goal “{esc(goal)}”" if is_sentence(goal) else f"{subject} for {esc(goal)}"


def _beside_chance(found: Found) -> str:
    """A chart of the figures in which the agent and random play differ; "" if one of them was not evaluated."""
    if not (found.own and found.chance):
        return ""
    own, chance = found.own, found.chance
    rows = []
    for figure in compared(own.figures):
        mine, theirs = own.figures[figure], chance.figures.get(figure)
        comparable = figure != "intrinsic_return" or own.reward == chance.reward
        if mine and theirs and comparable and mine != theirs:
            rows.append((*words(figure), (mine, theirs)))
    return f'<div class="card">{bars(rows[:SHOWN], (label(own), "random play"))}</div>' if rows else ""


def label(player: EvaluatedPlayer) -> str:
    """The name of a player in the report."""
    if player.decoding:
        name = "the policy" if player.path == "." else player.name.rpartition("-beta")[0]
        return f"{name}, beta {player.beta:g}{'' if player.kind == 'sample' else f', {player.kind}'}"
    if player.path == ".":
        how = f", {player.option}{'' if '=' in player.option else ' alone'}" if player.option else ""
        return f"the agent{how}{', greedy' if player.greedy else ''}, step {player.step:,}"
    name = player.name.removesuffix(f"-{player.protocol}")
    return {"random": "random play", "explorer": "the explorer", "bot": "the bot"}.get(name, name)


def annotator(found: Found) -> str:
    """The names of the annotators that the reward was learnt from, as HTML."""
    names = {
        "lexicon": "a lexicon of rules", "score": "an oracle that knows the score", "random": "chance",
        "return": "an oracle that knows the rewards",
    }  # fmt: skip
    words = []
    for one in found.labelled:
        models = sorted({log["model"] for log in one.logs if log.get("model")})
        backend = one.facts.get("backend", "")
        word = ", ".join(model.rstrip("/").rpartition("/")[2] for model in models)
        words.append(word or names.get(backend) or f"the annotation {one.name}")
    return " and ".join(f"<b>{esc(word)}</b>" for word in dict.fromkeys(words))


def _asked(found: Found) -> list[str]:
    """Sentences on the annotator, the number of pairs, and the accuracy of the reward."""
    if not found.pairs:
        return []
    pairs = f"<b>{len(found.pairs.dataset):,}</b> pairs of moments"
    if not found.labelled:
        return [f"{pairs} with {found.pairs.facts.get('distinct_captions', 0):,} different messages were collected."]
    who, total = annotator(found), len(found.pairs.dataset)
    judged = total - min(one.counts.get("not asked", 0) for one in found.labelled)
    pairs = pairs if judged == total else f"<b>{judged:,}</b> of {pairs}"
    found_words = [f"{who[:3]}{who[3:4].upper()}{who[4:]} judged {pairs}."]
    last = found.learnt.history[-1] if found.learnt and found.learnt.history else {}
    if last.get("sided"):
        found_words.append(
            f"The reward learnt from it agrees with <b>{percent(last.get('accuracy'))}</b> of "
            f"{esc(preferences(last))}: {esc(verdict(last))}."
        )
    elif last.get("sided") == 0:
        found_words.append("None of the pairs that were set aside has a preference, so the reward was not tested.")
    return found_words


def _trained(found: Found) -> list[str]:
    """A sentence on the training: steps, time, speed and machine."""
    training = found.training
    if not training:
        return []
    rewards = rewards_of(training.settings)
    by = f", rewarded {'only ' if len(rewards) == 1 else ''}by {listed(list(rewards))}," if rewards else ""
    where = machine_line(found)
    still = "" if training.is_over else " so far"
    speed = f": {training.speed:,.0f} steps/s" if training.speed else ""
    return [
        f"The agent{by} was trained for <b>{steps(training.steps)}</b> steps in <b>{duration(training.seconds)}</b>"
        f"{still}{speed}{f' on {where}' if where else ''}."
    ]


def rewards_of(settings: Facts) -> dict[str, float]:
    """The coefficients of a policy's rewards, by their titles as plain text; empty if they are not known."""
    if not {"extrinsic_coefficient", "intrinsic_coefficient"} <= settings.keys():
        return {}
    if settings.get("options", "").strip():
        return {"the rewards of its options": 1.0}
    game = settings["extrinsic_coefficient"]
    found = {GAME_REWARD: game}
    named = {name: known.words for name, known in SOURCES.items()}
    if judgeless := find(ONLINE_REWARDS, settings.get("online", {}).get("kind", "")):
        named[ONLINE] = judgeless.title
    for choice in parse_sources(settings.get("sources", LEARNT), settings["intrinsic_coefficient"]):
        found[named.get(choice.name) or program_title(choice.name) or choice.name] = choice.coefficient
    return {words: coefficient for words, coefficient in found.items() if coefficient}


def listed(words: Sequence[str]) -> str:
    """Joins words as in a sentence: "a, b and c"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _played(found: Found) -> list[str]:
    """Sentences on the evaluation: success if a goal was ever reached, else score or return; with random play's."""
    own, chance = found.own, found.chance
    if not own:
        return []
    both = [player.figures.get("success") for player in (own, chance) if player]
    reached = any(success and success.mean for success in both)
    figure, does = ("score", "scores") if own.figures.get("score") else ("return", "gets a return of")
    if reached:
        figure, does = "success", "reaches the goal in a share of"
    mine, theirs = own.figures.get(figure), chance.figures.get(figure) if chance else None
    sentences = []
    if mine:
        beside = f", random play {spell(theirs)}" if theirs else ""
        known = " (means with 95 % intervals)" if any(one and one.words for one in (mine, theirs)) else ""
        games = "one game" if own.episodes == 1 else f"{own.episodes:,} games"
        sentences.append(f"In {games} it {does} <b>{spell(mine)}</b>{beside}{known}.")
    if not chance:
        sentences.append('<span class="soft">--config.evaluate.policy=random plays the same games by chance.</span>')
    return sentences


def machine_line(found: Found) -> str:
    """The machine in a few words, as HTML."""
    machine = found.machine
    if not machine.get("processor"):
        return ""
    words = [machine["processor"]]
    if machine.get("device") and "cpu" not in machine["device"].lower():
        words.insert(0, f"{machine.get('devices', 1)} × {machine['device']}")
    if machine.get("cores"):
        words.append(f"{machine['cores']} cores")
    return esc(", ".join(words))


def ran_on(found: Found) -> list[str]:
    """The part on the machine, as HTML: machine, versions, dates, and the whole config."""
    machine = found.machine
    rows: list[tuple[str, Any]] = [("processor", machine_line(found))]
    if machine.get("memory_gib"):
        rows.append(("memory", f"{machine['memory_gib']} GiB"))
    if machine.get("system"):
        rows.append(("system", esc(f"{machine['system']}, Python {machine.get('python', '')}")))
    config = found.training.config if found.training else dict(found.offline)
    if plays_own_world(config):
        config = without_nethack(config)
    rows.append(("commit", esc(machine.get("commit", ""))))
    rows.append(("versions", versions_line(found)))
    rows += [
        (f"{what} made", esc(part.made))
        for what, part in (("dataset", found.pairs), ("reward", found.learnt), ("policy", found.training))
        if part
    ]
    if "seed" in config:
        rows.append(("seed", esc(config["seed"])))
    body = [table(("", ""), [[esc(name), value] for name, value in rows if value], kind="fits")]
    if config:
        body.append(folded("the whole config", json.dumps(config, indent=2, sort_keys=True)))
    return body


def versions_line(found: Found) -> str:
    """The versions of the libraries, as HTML; NLE's only if NetHack is played."""
    versions = dict(found.machine.get("versions", {}))
    if plays_own_world(found.training.config if found.training else found.offline):
        versions.pop("nle", None)
    return esc(", ".join(f"{name} {version}" for name, version in versions.items()))


def plays_own_world(config: Mapping[str, Any]) -> bool:
    """Whether the config names a world of the user's own."""
    return ":" in str(config.get("env", {}).get("world", ""))


def without_nethack(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without the values that only NetHack uses."""
    return {
        name: {key: value for key, value in section.items() if key not in OF_NETHACK.get(name, ())}
        if isinstance(section, Mapping)
        else section
        for name, section in config.items()
    }


def spell(interval: Interval) -> str:
    """A mean with its interval, in a sentence."""
    return f"{exact(interval.mean)} {interval.words}".rstrip()


def steps(count: int) -> str:
    """A number of steps in words, such as 1.5 million."""
    short = float(f"{count:.3g}")  # first, so that 999,999,999 is 1 billion
    for size, word in ((1e9, "billion"), (1e6, "million")):
        if count >= 1e6 and short >= size:
            return f"{short / size:,g} {word}"
    return f"{count:,}"


def duration(seconds: float) -> str:
    """A duration in words, such as 12 minutes."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
