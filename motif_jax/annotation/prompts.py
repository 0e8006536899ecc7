"""The question that is put to a language model: built-in versions, goals, and the user's own.

A prompt is a TOML file with the fields `system`, `reason` or `score` (the request in that mode), `captions` and
`retry`; the general ones are beside this file, those of a game among its texts (texts.py). One that has a place for
`{caption}` rather than for `{first}` and `{second}` asks about one caption, whether it is helpful. All that is the same
for every question comes before the captions: it is computed once by an engine that caches prefixes.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.parsing import HELPFUL
from motif_jax.annotation.texts import Texts
from motif_jax.foreign import read_text
from motif_jax.structs import UserError

VERSIONS = ("default", "reworded")
CLASSIFY = "classify"  # the version that asks about one caption
MODES = ("reason", "score")

Message = dict[str, str]


@dataclass(frozen=True)
class Prompt:
    """A question with places for two captions, or with a place for one."""

    system: str
    request: str  # with the goal in it
    captions: str  # with {first} and {second}, or with {caption}
    retry: str  # "" in mode score, where no answer is read from text
    system_role: bool = True  # False: for chat templates without this role, the system text opens the user's message

    def messages(self, question: Question) -> list[Message]:
        """The conversation that asks `question`."""
        if question.second is None:
            places = {"{caption}": question.first}
        else:
            places = {"{first}": question.first, "{second}": question.second}
        user = f"{self.request}\n{_fill(self.captions, places)}"
        if not self.system:
            return [{"role": "user", "content": user}]
        if not self.system_role:
            return [{"role": "user", "content": f"{self.system}\n\n{user}"}]
        return [{"role": "system", "content": self.system}, {"role": "user", "content": user}]

    def again(self, messages: list[Message], said: str) -> list[Message]:
        """The same conversation after an answer without a verdict."""
        return [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": self.retry}]

    @property
    def one(self) -> bool:
        """Whether it asks about one caption."""
        return "{caption}" in self.captions

    @property
    def key(self) -> str:
        """The key before the verdict that this prompt asks for: one of `parsing.KEYS`, or HELPFUL."""
        if self.one:
            return HELPFUL
        return "best_message" if "best_message" in self.retry else "best_description"

    @property
    def verdicts(self) -> list[str]:
        """The ways to end an analysis, in the words of this prompt."""
        return [f'("{self.key}": {verdict})' for verdict in (("yes", "no") if self.one else ("1", "2", "None"))]

    @property
    def hash(self) -> str:
        """A hash of all fields, which identifies the prompt."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def make_prompt(
    texts: Texts, mode: str, goal: str, version: str, file: str = "", system_role: bool = True, one: bool = False
) -> Prompt:
    """The prompt of a mode.

    Args:
      texts: what is said of the game.
      mode: "reason" or "score".
      goal: one of the game's goals, or a sentence.
      version: one of VERSIONS; not used with `file`, nor for one caption.
      file: a prompt file of the user's own.
      system_role: whether the model's chat template has the role "system".
      one: whether it asks about one caption rather than two.
    """
    if mode not in MODES:
        raise UserError(f"unknown mode {mode!r} (--config.annotate.mode): choose from {', '.join(MODES)}")
    if not file and version not in VERSIONS:
        raise UserError(f"unknown prompt {version!r} (--config.annotate.prompt): choose from {', '.join(VERSIONS)}")
    path = Path(file).expanduser() if file else texts.prompt(CLASSIFY if one else version)
    fields = _read(path)
    needed = ["captions", mode] + ["retry"] * (mode == "reason")
    for name in needed:
        if not fields.get(name):
            raise UserError(f"prompt file {str(path)!r} lacks the field {name!r} (--config.annotate.prompt_file)")
    for name in ("caption",) if one else ("first", "second"):
        if f"{{{name}}}" not in fields["captions"]:
            raise UserError(
                f"the field 'captions' of prompt file {str(path)!r} has no place for {{{name}}} "
                "(--config.annotate.prompt_file)"
            )
    text = goal_text(texts, goal)
    if "{goal}" not in fields[mode] and goal != "defaultgoal":
        raise UserError(
            f"the field {mode!r} of prompt file {str(path)!r} has no place for {{goal}}, so the goal {goal!r} would "
            "never be said (--config.annotate.goal, --config.annotate.prompt_file)"
        )
    return Prompt(
        system=fields.get("system", "").replace("{game}", texts.about),
        request=re.sub(r"[ \t]+\n", "\n", _fill(fields[mode], {"{game}": texts.about, "{goal}": text})).strip(),
        captions=fields["captions"],
        retry=fields["retry"] if mode == "reason" else "",
        system_role=system_role,
    )


def is_sentence(goal: str) -> bool:
    """Whether a goal is in the user's own words; otherwise it is the name of one."""
    return " " in goal.strip()


def goal_text(texts: Texts, goal: str) -> str:
    """What is said about the goal: a named one in the words of the game's texts, a sentence as it is."""
    goals = texts.goals
    if goal in goals:
        return goals[goal]
    if is_sentence(goal):
        return goal.strip()
    near = difflib.get_close_matches(goal, goals, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(goals)}, or write a sentence of your own"
    raise UserError(f"unknown goal {goal!r} (--config.annotate.goal): {hint}")


def _fill(text: str, places: Mapping[str, str]) -> str:
    """Puts values in their places, all at once: places that a value itself names are left as they are."""
    return re.sub("|".join(map(re.escape, places)), lambda place: places[place[0]], text)


def _read(path: Path) -> dict[str, str]:
    try:
        fields = tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise UserError(f"there is no prompt file {str(path)!r} (--config.annotate.prompt_file)") from None
    except (OSError, ValueError) as error:  # ValueError: not text, or not TOML
        reason = " ".join(str(error.strerror if isinstance(error, OSError) else error).split())
        raise UserError(f"cannot read prompt file {str(path)!r}: {reason} (--config.annotate.prompt_file)") from error
    known = {"system", "captions", "retry", *MODES}
    for name, value in fields.items():
        if name not in known or not isinstance(value, str):
            what = "is no field of a prompt" if name not in known else "must be text"
            raise UserError(f"{name!r} in prompt file {str(path)!r} {what} (--config.annotate.prompt_file)")
    return {name: value.strip() for name, value in fields.items()}
