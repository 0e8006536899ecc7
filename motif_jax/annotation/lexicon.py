"""A stand-in for a language model: rules over NetHack's messages, transparent and deterministic.

Each rule has a pattern and a value per goal; a caption is worth the sum of the rules that match it, and of two captions
the one worth more is better. Equal worth is a tie. It knows what a player would say at a glance and nothing else: it is
here so that everything runs without a download, and so that results can be checked against rules that one can read.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from motif_jax.annotation.annotator import Answer, Question
from motif_jax.annotation.prompts import GOALS
from motif_jax.structs import UserError

GENERAL = ("defaultgoal", "zeroknowledge")  # goals that ask for progress of any kind


class Rule(NamedTuple):
    """What a message is worth: as progress, and to each particular goal by its name."""

    name: str
    pattern: str
    progress: float
    combat: float = 0.0
    gold: float = 0.0
    stairs: float = 0.0

    def worth_to(self, goal: str) -> float:
        """The value for one of GOALS."""
        return float(self.progress if goal in GENERAL else getattr(self, goal))


RULES = (
    # ---- fighting
    Rule("beats a monster", r"You (?:kill|destroy) |is (?:killed|destroyed)!", 3, 3),
    Rule("hits a monster", r"You (?:hit|bite|kick(?! at empty)|strike|smite|stab|claw|butt|sting|touch) ", 1, 2),
    Rule("attacks in vain", r"You (?:miss|just miss|barely miss|begin bashing|attack thin air)", 0.25, 1),
    Rule("is attacked", r" (?:bites|hits|stings|claws|kicks|butts|touches|misses)(?: you[^.!]*)?[.!]", -0.5, 0.5),
    Rule("a missile flies by", r"(?:shoots|throws|hurls|fires) [^.!]*[.!]|You are (?:almost )?hit by", -0.5, 0.5),
    Rule("attacks a friend", r"^Really attack", -0.5),
    # ---- gold
    Rule("picks up gold", r"\$ - \d+ gold piece", 2, -1, 3),
    Rule("sees gold", r"You see here (?:\d+|a) gold piece|gold pieces? here", 1, -0.5, 1.5),
    Rule("sells for gold", r"You (?:sold|sell) ", 1, -0.5, 2),
    Rule("gold is near", r"vein of gold|gold vein|counting money", 0.25),
    Rule("loses gold", r"(?:steals?|stole|takes) [^.]*(?:gold|zorkmid|purse|money)|purse feels lighter", -2, 0, -3),
    Rule("pays", r"You (?:bought|pay|paid) |You owe ", 0, 0, -1),
    # ---- going down
    Rule("goes down", r"You (?:descend|climb down|fall|plunge)[^.!]*(?:stair|trap ?door|hole|ladder|through)",
         3, -1, -1, 3),
    Rule("finds the way down", r"(?:staircase|stairs|stairway|ladder) down here|(?:trap ?door|hole) here",
         1, -0.5, -0.5, 1.5),
    Rule("goes up", r"You (?:ascend|climb up)", -1, 0, 0, -3),
    Rule("no way down here", r"You can't go down here", -0.25, 0, 0, -0.25),
    # ---- finding and getting things
    Rule("opens the way", r"The door opens|it crashes open|You succeed in (?:unlocking|picking)|WHAMM",
         0.5, 0, 0.25, 0.25),
    Rule("finds what was hidden", r"You find a hidden", 1.5, 0, 0.5, 0.5),
    Rule("picks up an item", r"(?:^|  )[a-zA-Z] - (?!\d+ gold)", 1),
    Rule("finds an item", r"You see here (?!.*(?:corpse|gold piece|rock|boulder))|objects here", 0.5),
    Rule("moves a boulder", r"With great effort you move", 0.25),
    # ---- growing
    Rule("gains a level", r"Welcome to experience level|You feel more experienced", 4, 1),
    Rule("feels better", r"You feel (?:healthy|tough|strong|agile|quick|better|much better|wise|perceptive|charm)"
         r"|leg feels better|[Yy]our .{0,30} (?:recover|return)|You feel a (?:hopeful|feeling of reconcil)", 1.5),
    Rule("eats", r"You finish eating|is delicious|hits the spot|tastes (?:okay|good|great)|That satiated",
         1, 0.25, 0.25, 0.25),
    # ---- trouble
    Rule("dies", r"You die|You starve|Do you want your possessions", -6, -6, -6, -6),
    Rule("is wasting away", r"You faint|You are fainting|from lack of food", -3, -1, -1, -1),
    Rule("is hungry", r"feel hungry|are hungry|feel weak|are weak", -1, -0.5, -0.5, -0.5),
    Rule("is trapped", r"bear trap|You fall into a pit|stuck|You land on a set of|You are caught|web", -1),
    Rule("is harmed", r"You feel (?:feverish|sick|weaker|ill)|poison|You stagger|Ouch|blinded|You are confused"
         r"|You turn to", -1),
    Rule("gets nowhere", r"It's (?:a wall|solid stone)|You can't|in vain|blocks your path|is locked|door resists"
         r"|There is nothing|nothing here|This door|is closed|Never mind|strange direction|You kick at empty"
         r"|is in the way", -0.5),
    Rule("asks nonsense of the game", r"Unknown command|What do you want to|In what direction", -0.25),
)  # fmt: skip


@functools.cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((rule.name, re.compile(rule.pattern)) for rule in RULES)


def happenings(message: str) -> list[str]:
    """Names of the rules that a message matches: what has happened, whatever it is worth."""
    return [name for name, pattern in _patterns() if pattern.search(message)]


# Rules that some particular goal asks for.
AIMS = {rule.name for rule in RULES if max(rule.worth_to(goal) for goal in GOALS if goal not in GENERAL) >= 2}
VERSION = hashlib.sha256(repr(RULES).encode()).hexdigest()[:16]  # labels by other rules are other labels
MAX_KNOWN = 100_000  # captions, so that memory stays bounded whatever the dataset


class Lexicon:
    """Answers by RULES."""

    def __init__(self, goal: str):
        """Takes one of the built-in goals."""
        if goal not in GOALS:
            raise UserError(
                f"the lexicon knows the goals {', '.join(GOALS)}, and not {goal!r} (--config.annotate.goal): a goal "
                "in your own words needs a language model, --config.annotate.backend=vllm or server"
            )
        self._rules = [(rule.name, re.compile(rule.pattern), rule.worth_to(goal)) for rule in RULES]
        self._known: dict[str, tuple[float, str]] = {}

    def answers(self, questions: Iterable[Question]) -> Iterator[tuple[Question, Answer]]:
        """Answers the questions one by one, in order."""
        for question in questions:
            yield question, self.answer(question)

    def answer(self, question: Question) -> Answer:
        """The caption worth more is better."""
        first, why_first = self.worth(question.first)
        second, why_second = self.worth(question.second)
        better = 0.5 if first == second else float(second > first)
        return Answer(better, f"1: {why_first} ({first:+g}); 2: {why_second} ({second:+g})")

    def worth(self, caption: str) -> tuple[float, str]:
        """What a caption is worth, and the rules that say so."""
        found = self._known.get(caption)
        if found is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            matched = [
                (name, value)
                for line in caption.split("\n")
                for name, pattern, value in self._rules
                if value and pattern.search(line)
            ]
            why = ", ".join(name for name, _ in matched) or "nothing of note"
            found = self._known[caption] = (sum(value for _, value in matched), why)
        return found

    def close(self) -> None:
        """Does nothing: there is nothing to release."""
