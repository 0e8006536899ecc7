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
With `without`, a sentence that stands in place of the goal, the rating is what the goal changes: the log-odds with the
goal minus those with this sentence. Small models rate how pleasant a caption is, more than what the goal says of it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from motif_jax.annotation.annotator import Question, QuestionAnswer
from motif_jax.config.table import shown
from motif_jax.console import suggest
from motif_jax.envs.texts import GENERAL, PROGRESS, Texts, read_toml
from motif_jax.structs import UserError

# Parses the verdict in a model's text.
#
# On two captions, the pattern accepts the same texts as the published one: the word "best", then "description" or
# "message", then at most one other word, then 1, 2, None or none. The first match counts. A match with the prompt's own
# key takes precedence over one with the key of the other published prompt.
#
# On one caption, only the field ("helpful": yes) or ("helpful": no) counts, and the last match decides: an analysis may
# quote its instructions, or weigh one answer before it gives the other. The patterns of a user's prompt for other words
# are read in the same way.

KEYS = ("best_description", "best_message")  # of the published prompts
PATTERNS = {
    f"best_{noun}": re.compile(
        rf"(?ai:best)_*\s*(?ai:{noun})"  # the key, with or without underscore, in ASCII
        r"\W*"  # quotes, brackets, colons, spaces
        r"(?:\w{1,32}\s*)?"  # "is"; without a bound, parsing "bestmessagebestmessage..." takes quadratic time
        r"(1|2|None|none)"
    )
    for noun in ("description", "message")
}
SECOND_BETTER = {"1": 0.0, "2": 1.0, "None": 0.5, "none": 0.5}
HELPFUL = "helpful"  # the key of a verdict on one caption
LABEL = re.compile(rf"(?ai:{HELPFUL})[\"'*`]*\s*[:=]\s*[\"'*`]*(?ai:(yes|no))\b")

OWN_WORDS: dict[bool, dict[str, float]] = {  # P(yes) of the user's patterns by name; True: of one caption
    True: {"yes": 1.0, "no": 0.0},
    False: {"first": 0.0, "second": 1.0, "neither": 0.5},
}
GOAL_FLAG = "--config.annotate.goal; of a schedule, --config.policy.online.goals"
LONGEST_PATTERN, MOST_REPEATS, MOST_WAYS = 200, 1000, 1000
SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")
TOKEN = re.compile(  # a part of a regular expression that can match in several ways; the first two only skip text
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?"
    r"|(?:(?P<group>\))\s*)?(?:(?P<endless>[*+]|\{\d*,\})|\{(?P<low>\d*)(?:,(?P<high>\d+))?\}|(?P<maybe>\?))|(?P<either>\|)",
    re.DOTALL,
)


def read_verdict(text: str, key: str) -> float | None:
    """P(yes) by the verdict in a model's text, None without one. `key`: of KEYS, or HELPFUL for a single caption."""
    if key == HELPFUL:
        labels = LABEL.findall(text)
        return float(labels[-1].lower() == "yes") if labels else None
    matches = (PATTERNS[name].search(text) for name in sorted(KEYS, key=lambda other: other != key))
    return next((SECOND_BETTER[match[1]] for match in matches if match), None)


def read_own(text: str, patterns: Mapping[str, str], one: bool) -> float | None:
    """P(yes) by patterns with names of OWN_WORDS, or None; of two matches at the same place the longer one counts."""
    spans = [(*match.span(), name) for name, pattern in patterns.items() for match in re.finditer(pattern, text)]
    if not spans:
        return None
    last = max(spans, key=lambda span: (span[1], -span[0]))
    first = min(spans, key=lambda span: (span[0], -span[1]))
    return OWN_WORDS[one][(last if one else first)[2]]


def pattern_problem(pattern: str) -> str:
    """The problem of an invalid pattern, as the end of a sentence; "" for a valid one.

    `re` backtracks over all ways in which a pattern can match, so their number must be small.
    """
    if len(pattern) > LONGEST_PATTERN:
        return f"is longer than {LONGEST_PATTERN} characters"
    try:
        matches_nothing = re.search(pattern, "") is not None
    except (re.error, RecursionError, OverflowError) as error:
        return f"is not a regular expression: {error}"
    if matches_nothing:
        return "matches an empty text"
    ways = 1
    for token in TOKEN.finditer(pattern):
        low, high = int(token["low"] or 0), int(token["high"] or token["low"] or 0)
        if token["endless"]:
            return f"repeats without a bound: write {{0,20}} in place of {token['endless']}"
        if token["group"] and not token["maybe"]:
            return "repeats a group, which may take very long to read"
        ways *= 2 if token["maybe"] or token["either"] else high - low + 1
        if high > MOST_REPEATS or ways > MOST_WAYS:
            return f"can match in more than {MOST_WAYS:,} ways, which may take very long to read"
    return ""


# ---- mode score: the model writes only the verdict, and the answer is computed from each verdict's probability

VERDICTS = ("1", "2", "0")  # first, second, neither
MIN_MASS = 1e-3  # with less, the probabilities carry no information about the question
OPENING = "("  # prefills the model's answer if the engine allows it, so that the next token is the verdict


def verdict_probabilities(logprobs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The probability of each verdict, given tokens, which may begin one, and their log-probabilities."""
    probabilities = dict.fromkeys(VERDICTS, 0.0)
    for token, logprob in logprobs:
        bare = token.strip(" \t\n(\"'▁Ġ:*")  # tokenizers write a leading space in several ways
        if bare in probabilities:
            probabilities[bare] += math.exp(logprob)
    return probabilities


def to_answer(probabilities: Mapping[str, float], tokens: tuple[int, int, int], one: bool = False) -> QuestionAnswer:
    """Computes an answer from the probabilities of the verdicts; `tokens`: of the prompt, cached, of the output.

    P(second is better) = (p2 + p0 / 2) / (p1 + p2 + p0), and P(helpful) = p1 / (p1 + p0) for a single caption. The sum
    of the probabilities is the answer's mass: a small mass means that the model tends to write something else.
    """
    first, second, neither = (probabilities.get(verdict, 0.0) for verdict in VERDICTS)
    mass = first + neither if one else first + second + neither
    if not mass >= MIN_MASS:  # also NaN
        said = f"no verdict: the verdicts have a probability of {mass:.2g} together"
        return QuestionAnswer(None, said, mass, *tokens)
    yes = (first if one else second + neither / 2) / mass
    return QuestionAnswer(min(max(yes, 0.0), 1.0), "", min(mass, 1.0), *tokens)


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
    without: tuple[str, ...] = ()  # the same with another sentence in place of the goal; its ratings are subtracted

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
        return "\n".join(message["content"] for message in self.messages(question)) + self.ending

    def texts(self, question: Question) -> list[str]:
        requests = (*self.requests, *self.without) or (self.request,)
        return [replace(self, request=request).text(question) for request in requests]

    def again(self, messages: list[Message], said: str) -> list[Message]:
        return [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": self.retry}]

    @property
    def one(self) -> bool:
        return "{caption}" in self.captions

    @property
    def key(self) -> str:
        if self.one:
            return HELPFUL
        return "best_message" if "best_message" in self.retry else "best_description"

    @property
    def verdicts(self) -> list[str]:
        """The possible verdicts in the words of this prompt, in the order of OWN_WORDS; [] if they are not literal."""
        if self.answers:
            return [] if any(map(SPECIAL.search, self.answers.values())) else list(self.answers.values())
        return [f'("{self.key}": {verdict})' for verdict in (("yes", "no") if self.one else ("1", "2", "None"))]

    def read(self, text: str) -> float | None:
        return read_own(text, self.answers, self.one) if self.answers else read_verdict(text, self.key)

    @property
    def hash(self) -> str:
        """A hash of all fields, which identifies the prompt; fields of later versions count only if they are set."""
        later = ("answers", "ending", "words", "requests", "without")
        fields = {name: value for name, value in asdict(self).items() if name not in later or value}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def make_prompt(
    texts: Texts, mode: str, goal: str, version: str, file: str = "", system_role: bool = True, one: bool = False
) -> QuestionTemplate:
    """Reads and checks the prompt of a mode.

    `goal`: one of the game's goals, or a sentence. `version`: one of VERSIONS; not used with `file`, the user's own, or
    for `one` caption. `system_role`: whether the model's chat template has it.
    """
    path = Path(file).expanduser() if file else texts.prompt(CLASSIFY if one and version != RATE else version)
    fields = read_toml(path, f"prompt file {str(path)!r}", FILE)
    answers, examples = fields.pop(ANSWERS, {}), fields.pop("examples", {})
    kept = WITH_SPACES if "ending" in fields else ()
    fields = {
        name: text.strip() if isinstance(text, str) and name not in kept else text for name, text in fields.items()
    }
    if mode == "rate" and "rate" not in fields:
        mode = "score"  # the same question
    patterns = _answer_problems(answers, one) if answers and mode == "reason" else ()
    for problem in itertools.chain(_field_problems(fields, mode, goal, one), patterns):
        raise UserError(f"prompt file {str(path)!r}: {problem} ({FILE})")
    template = QuestionTemplate(
        system=fields.get("system", "").replace("{game}", texts.about),
        request=_request(fields[mode], texts, goal_text(texts, goal)),
        captions=fields["captions"],
        retry=fields["retry"] if mode == "reason" else "",
        ending=fields.get("ending", ""),
        system_role=system_role,
        answers={name: answers[name] for name in OWN_WORDS[one] if name in answers} if mode == "reason" else {},
    )
    if mode != "rate":
        return template
    template = replace(template, words=(fields["good"], fields["bad"]))
    requests = _with_examples(template, fields, examples, goal)
    if "without" in fields:
        sentence = _fill(fields["without"], {"{game}": texts.about})
        plain = replace(template, request=_request(fields[mode], texts, sentence))
        template = replace(template, without=_with_examples(plain, fields, examples, goal))
    return replace(template, request=requests[0], requests=requests)


def _request(text: str, texts: Texts, goal: str) -> str:
    return re.sub(r"[ \t]+\n", "\n", _fill(text, {"{game}": texts.about, "{goal}": goal})).strip()


def _with_examples(
    template: QuestionTemplate, fields: Mapping[str, str], examples: Mapping[str, Any], goal: str
) -> tuple[str, ...]:
    """The request of a rating, with the goal's examples in both orders after it.

    Small models mind whether the last example is a good one, and this decides their answer about no message.
    """
    lists = examples.get(goal) or examples.get(PROGRESS if goal in GENERAL else OTHER) or {"good": [], "bad": []}
    pairs = [((yes, fields["good"]), (no, fields["bad"])) for yes, no in zip(lists["good"], lists["bad"], strict=True)]
    requests = []
    for order in (pairs, [pair[::-1] for pair in pairs]):
        shown = template
        for caption, word in itertools.chain(*order):
            shown = replace(shown, request=shown.text(Question(caption)) + word)
        requests.append(shown.request)
    return tuple(dict.fromkeys(requests))


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
    hint = suggest(goal, goals, f"choose from {', '.join(goals)}, or write a sentence of your own")
    raise UserError(f"unknown goal {goal!r} ({GOAL_FLAG}): {hint}")


def _fill(text: str, places: Mapping[str, str]) -> str:
    """Fills in all places at once, so that places inside the values stay as they are."""
    return re.sub("|".join(map(re.escape, places)), lambda place: places[place[0]], text)


# ---- problems of a user's prompt file; the first one is shown


def _field_problems(fields: Mapping[str, Any], mode: str, goal: str, one: bool) -> Iterator[str]:
    of_mode = {"without"} if mode == "rate" else set()
    for name in fields.keys() - {"system", "retry", *of_mode, *WITH_SPACES, *MODES}:
        yield f"{name!r} is not a field of a prompt"
    for name in (name for name, text in fields.items() if not isinstance(text, str)):
        yield f"{name!r} must be text, not {shown(fields[name])}"
    for name in ("captions", mode, *{"reason": ["retry"], "rate": ["ending", "good", "bad"]}.get(mode, [])):
        if not fields.get(name):
            yield f"it lacks the field {name!r}, a text (or choose another --config.annotate.mode or .prompt)"
    for name in ("caption",) if one else ("first", "second"):
        if f"{{{name}}}" not in fields["captions"]:
            yield f"the field 'captions' has no place for {{{name}}}"
    if "{goal}" not in fields[mode] and (goal != "defaultgoal" or "without" in fields):
        yield (
            f"the field {mode!r} has no place for {{goal}}, so the goal {goal!r} would never be mentioned ({GOAL_FLAG})"
        )


def _answer_problems(answers: Any, one: bool) -> Iterator[str]:
    names = list(OWN_WORDS[one])
    if not isinstance(answers, dict) or not all(isinstance(pattern, str) for pattern in answers.values()):
        yield f"`{ANSWERS}` must be a table of patterns, which are texts"
    if not {*names[:2]} <= answers.keys() <= {*names} or len({*answers.values()}) < len(answers):
        yield f"`{ANSWERS}` must be different patterns, named {', '.join(names)}"
    for name, pattern in answers.items():
        if problem := pattern_problem(pattern):
            yield f"{shown(f'{ANSWERS}.{name}')} {problem}"
