r"""Prompts for language models: built-in versions, goals, and the user's own.

A prompt is a TOML file with the fields `system`, `reason` or `score` (the request in that mode), `captions` and
`retry`. A prompt with an `ending` is a text to continue, not a conversation, for small models. General prompts are in
envs/general, those of a game among its texts (envs/texts.py). A prompt with a place for `{caption}` instead of
`{first}` and `{second}` asks whether one caption is helpful. Everything constant comes before the captions, so that an
engine with prefix caching computes it once.

A prompt that asks for a verdict in other words defines how it is parsed, by a regular expression per answer:

    answers.yes = 'label\W{0,9}FOO'      # of one caption: yes, no
    answers.no = 'label\W{0,9}BAR'       # of two: first, second, and optionally neither

In mode `rate` a text to continue ends with one of two words of the file, `good` and `bad`, and has examples per goal.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.parsing import HELPFUL, OWN_WORDS, is_plain, pattern_problem, read_own, read_verdict
from motif_jax.config.table import shown
from motif_jax.envs.rules import GENERAL, PROGRESS, read_toml
from motif_jax.envs.texts import Texts
from motif_jax.structs import UserError

CHATS = ("default", "reworded")
EXAMPLES = "examples"  # the version that is a text to continue
VERSIONS = ("auto", *CHATS, EXAMPLES)
CLASSIFY, RATE = "classify", "rate"  # the versions that ask about one caption: in a conversation, and as a text
MODES = ("reason", "score", "rate")
OTHER = "other"  # the examples for goals without examples of their own
ANSWERS = "answers"  # the field with the patterns of the verdict
WITH_SPACES = ("captions", "ending", "good", "bad")  # fields of a text to continue whose spaces at both ends count
FILE = "--config.annotate.prompt_file"

Message = dict[str, str]
Examples = dict[str, tuple[list[str], list[str]]]  # captions that are good and bad, by goal


@dataclass(frozen=True)
class QuestionTemplate:
    """A template of a question with places for two captions, or for one."""

    system: str
    request: str  # contains the goal
    captions: str  # contains {first} and {second}, or {caption}
    retry: str  # "" in mode score, which parses no text
    ending: str = ""  # after the captions of a text to continue; "": a conversation
    system_role: bool = True  # False: the template has no such role; the user's message begins with the text
    answers: dict[str, str] = field(default_factory=dict)  # patterns by names of OWN_WORDS; {}: the built-in words
    words: tuple[str, ...] = ()  # good and bad, which continue the text about one caption; (): digits
    requests: tuple[str, ...] = ()  # with `words`: the request with its examples in one order and in the other

    def messages(self, question: Question) -> list[Message]:
        places = {"{caption}": question.first}
        if question.second is not None:
            places = {"{first}": question.first, "{second}": question.second}
        user = f"{self.request}\n{_fill(self.captions, places)}"
        if not self.system:
            return [{"role": "user", "content": user}]
        if not self.system_role:
            return [{"role": "user", "content": f"{self.system}\n\n{user}"}]
        return [{"role": "system", "content": self.system}, {"role": "user", "content": user}]

    def text(self, question: Question) -> str:
        """The text to continue."""
        return "\n".join(message["content"] for message in self.messages(question)) + self.ending

    def texts(self, question: Question) -> list[str]:
        """The texts to continue whose answers are averaged."""
        return [replace(self, request=request).text(question) for request in self.requests or (self.request,)]

    def again(self, messages: list[Message], said: str) -> list[Message]:
        """The conversation that asks again after an answer without a verdict."""
        return [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": self.retry}]

    @property
    def one(self) -> bool:
        """Whether the prompt asks about one caption."""
        return "{caption}" in self.captions

    @property
    def key(self) -> str:
        """The verdict's key: one of `parsing.KEYS`, or HELPFUL."""
        if self.one:
            return HELPFUL
        return "best_message" if "best_message" in self.retry else "best_description"

    @property
    def verdicts(self) -> list[str]:
        """The possible verdicts in the words of this prompt, in the order of OWN_WORDS; [] if they are not literal."""
        if self.answers:
            return list(self.answers.values()) if all(map(is_plain, self.answers.values())) else []
        return [f'("{self.key}": {verdict})' for verdict in (("yes", "no") if self.one else ("1", "2", "None"))]

    def read(self, text: str) -> float | None:
        """P(yes) by the verdict in a model's text; None without a verdict."""
        return read_own(text, self.answers, self.one) if self.answers else read_verdict(text, self.key)

    @property
    def hash(self) -> str:
        """A hash of all fields, which identifies the prompt; fields of later versions count only if they are set."""
        later = ("answers", "ending", "words", "requests")
        fields = {name: value for name, value in asdict(self).items() if name not in later or value}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def make_prompt(
    texts: Texts, mode: str, goal: str, version: str, file: str = "", system_role: bool = True, one: bool = False
) -> QuestionTemplate:
    """Reads and checks the prompt of a mode.

    Args:
      texts: the texts about the game.
      mode: one of MODES.
      goal: one of the game's goals, or a sentence.
      version: one of VERSIONS; not used with `file`, nor for one caption.
      file: the user's prompt file, or "".
      system_role: whether the model's chat template has the role "system".
      one: whether the prompt asks about one caption instead of two.
    """
    path = Path(file).expanduser() if file else texts.prompt(CLASSIFY if one and version != RATE else version)
    fields, answers, examples = _read(path)
    if mode == "rate" and "rate" not in fields:
        mode = "score"  # the same question
    _check_fields(fields, mode, goal, one, path)
    if mode == "reason" and answers:
        _check_answers(answers, path, one)
    request = _fill(fields[mode], {"{game}": texts.about, "{goal}": goal_text(texts, goal)})
    template = QuestionTemplate(
        system=fields.get("system", "").replace("{game}", texts.about),
        request=re.sub(r"[ \t]+\n", "\n", request).strip(),
        captions=fields["captions"],
        retry=fields["retry"] if mode == "reason" else "",
        ending=fields.get("ending", ""),
        system_role=system_role,
        answers={name: answers[name] for name in OWN_WORDS[one] if name in answers} if mode == "reason" else {},
    )
    return _with_examples(template, fields, examples, goal) if mode == "rate" else template


def _with_examples(
    template: QuestionTemplate, fields: Mapping[str, str], examples: Examples, goal: str
) -> QuestionTemplate:
    """The template of a rating, with the goal's examples in both orders before the caption.

    Small models mind whether the last example is a good one, and this decides their answer about no message.
    """
    template = replace(template, words=(fields["good"], fields["bad"]))
    group = PROGRESS if goal in GENERAL else OTHER
    good, bad = examples.get(goal) or examples.get(group) or ([], [])
    pairs = [((yes, fields["good"]), (no, fields["bad"])) for yes, no in zip(good, bad, strict=True)]
    requests = []
    for order in (pairs, [pair[::-1] for pair in pairs]):
        shown = template
        for caption, word in itertools.chain(*order):
            shown = replace(shown, request=shown.text(Question(caption)) + word)
        requests.append(shown.request)
    return replace(template, request=requests[0], requests=tuple(dict.fromkeys(requests)))


def _check_fields(fields: Mapping[str, str], mode: str, goal: str, one: bool, path: Path) -> None:
    """Raises UserError if a prompt file lacks what a mode needs."""
    if mode == "reason" and fields.get("ending"):
        raise UserError(
            f"prompt file {str(path)!r} has an `ending`, so it is a text to continue, in which no analysis is written "
            "(--config.annotate.mode=rate or score, --config.annotate.prompt, .prompt_file)"
        )
    for name in ("captions", mode, *{"reason": ["retry"], "rate": ["ending", "good", "bad"]}.get(mode, [])):
        if not fields.get(name):
            raise UserError(f"prompt file {str(path)!r} lacks the field {name!r} ({FILE})")
    for name in ("caption",) if one else ("first", "second"):
        if f"{{{name}}}" not in fields["captions"]:
            raise UserError(f"the field 'captions' of prompt file {str(path)!r} has no place for {{{name}}} ({FILE})")
    if "{goal}" not in fields[mode] and goal != "defaultgoal":
        raise UserError(
            f"the field {mode!r} of prompt file {str(path)!r} has no place for {{goal}}, so the goal {goal!r} would "
            "never be mentioned (--config.annotate.goal, --config.annotate.prompt_file)"
        )


def is_sentence(goal: str) -> bool:
    """Whether a goal is a sentence of the user rather than a name."""
    return " " in goal.strip()


def goal_text(texts: Texts, goal: str) -> str:
    """The text of a goal: for a name the game's text, for a sentence the sentence itself."""
    goals = texts.goals
    if goal in goals:
        return goals[goal]
    if is_sentence(goal):
        return goal.strip()
    near = difflib.get_close_matches(goal, goals, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(goals)}, or write a sentence of your own"
    raise UserError(f"unknown goal {goal!r} (--config.annotate.goal): {hint}")


def _fill(text: str, places: Mapping[str, str]) -> str:
    """Fills in all places at once, so that places inside the values stay as they are."""
    return re.sub("|".join(map(re.escape, places)), lambda place: places[place[0]], text)


def _read(path: Path) -> tuple[dict[str, str], dict[str, Any], Examples]:
    """The text fields of a prompt file, its unchecked `answers`, and its examples."""
    fields = read_toml(path, f"prompt file {str(path)!r}", FILE)
    answers = fields.pop(ANSWERS, {})
    if not isinstance(answers, dict):
        raise UserError(f"{ANSWERS!r} in prompt file {str(path)!r} must be a table of patterns ({FILE})")
    examples = _examples(fields.pop("examples", {}), path)
    for name, value in fields.items():
        unknown = name not in {"system", "retry", *WITH_SPACES, *MODES}
        if unknown or not isinstance(value, str):
            problem = "is not a field of a prompt" if unknown else "must be text"
            raise UserError(f"{name!r} in prompt file {str(path)!r} {problem} ({FILE})")
    kept = WITH_SPACES if "ending" in fields else ()
    texts = {name: value if name in kept else value.strip() for name, value in fields.items()}
    return texts, answers, examples


def _examples(table: Any, path: Path) -> Examples:
    """Checks the examples of a prompt file."""
    examples: Examples = {}
    for goal, lists in table.items() if isinstance(table, dict) else [("", None)]:
        both: list[Any] = [lists.get(name) for name in ("good", "bad")] if isinstance(lists, dict) else []
        texts = [isinstance(one, list) and all(isinstance(text, str) for text in one) for one in both]
        if not both or not all(texts) or len(both[0]) != len(both[1]):
            raise UserError(
                f"{shown(f'examples.{goal}')} in prompt file {str(path)!r} must be two lists of texts, `good` and "
                f"`bad`, of the same length ({FILE})"
            )
        examples[goal] = both[0], both[1]
    return examples


def _check_answers(answers: Mapping[str, Any], path: Path, one: bool) -> None:
    """Raises UserError for invalid patterns of answers."""
    names = list(OWN_WORDS[one])
    kind = "a prompt about one caption" if one else "a prompt about two captions"
    for name in [*answers, *names[:2]]:
        pattern = answers.get(name)
        if name not in names:
            problem = f"is not an answer: {kind} has {', '.join(names)}"
        elif name not in answers:
            problem = f"is missing: {kind} has {', '.join(names)}"
        elif not isinstance(pattern, str):
            problem = f"must be a pattern, which is text, not {shown(pattern)}"
        elif pattern in (other for key, other in answers.items() if key != name):
            problem = "is also the pattern of another answer"
        else:
            problem = pattern_problem(pattern)
        if problem:
            raise UserError(f"{shown(f'{ANSWERS}.{name}')} in prompt file {str(path)!r} {problem} ({FILE})")
