"""Formats of conversations: how the messages of system, user and assistant become one text. Does not load JAX.

A model's file has its format as a Jinja program. Programs of other people are not executed: this one is only searched
for the marks of the formats below, which are written here. A model that is saved gets a program of ours.

    chatml     <|im_start|>user\\n ... <|im_end|>\\n                      Qwen, SmolLM2 and many others
    llama3     <|start_header_id|>user<|end_header_id|>\\n\\n ... <|eot_id|>
    llama2     [INST] <<SYS>>\\n ... \\n<</SYS>>\\n\\n ... [/INST]
    mistral, mistral-v3, mistral-tekken     [INST] ... [/INST], with two, one and no spaces
    zephyr     <|user|>\\n ... </s>\\n
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from motif_jax.tokens import Tokeniser

SYSTEM, USER, ASSISTANT = ROLES = ("system", "user", "assistant")
LONGEST = 2000  # characters of a system message that a template brings along
JINJA = """\
{%- set around, joined = AROUND, namespace(text="") -%}
{{- BEGINS -}}
{%- if messages[0].role != "system" -%}{{- OWN -}}{%- endif -%}
{%- for message in messages -%}
  {%- set content = message.content | trim if STRIPS else message.content -%}
  {%- if message.role == "system" and JOINS -%}
    {%- set joined.text = BEFORE + content + AFTER -%}
  {%- elif message.role == "user" -%}
    {{- around.user[0] + joined.text + content + around.user[1] -}}
    {%- set joined.text = "" -%}
  {%- else -%}
    {{- around[message.role][0] + content + around[message.role][1] -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- ANSWERS -}}{%- endif -%}
"""  # words in capitals stand for the texts of a format


class ChatFormat(NamedTuple):
    """A format of conversations. Texts around messages are of this program, and contain its marks."""

    name: str
    around: Mapping[str, tuple[str, str]]  # before and after the messages of each role
    marks: tuple[str, ...]  # marks that are all in a template of this format
    others: tuple[str, ...] = ()  # marks that are not in a template of this format
    begins: str = ""  # before the first message
    answers: str = ""  # before the assistant's next message
    strips: bool = False  # spaces around messages are removed
    joins: str = ""  # a format without the role system: how its message is put before the first of the user
    system: str = ""  # the system's message where there is none

    def pieces(self, messages: Sequence[Mapping[str, str]], answer: bool = True) -> list[str]:
        """The parts of the text for `Tokeniser.encode_pieces`: those of this program, and contents of messages between.

        `messages`: each with `role` and `content`, as in OpenAI's interface. `answer`: whether the assistant's next
        message is to follow.
        """
        turns = [(message["role"], message["content"]) for message in messages]
        if self.system and not (turns and turns[0][0] == SYSTEM):
            turns.insert(0, (SYSTEM, self.system))
        pieces, joined = [self.begins], ""
        for role, content in turns:
            content = content.strip() if self.strips else content
            if role == SYSTEM and self.joins:
                joined = self.joins.format(content)
                continue
            before, after = self.around[role]
            if role == USER:
                content, joined = joined + content, ""
            pieces[-1] += before
            pieces += [content, after]
        pieces[-1] += self.answers if answer else ""
        return pieces

    def text(self, messages: Sequence[Mapping[str, str]], answer: bool = True) -> str:
        """The conversation as one text, in which a content that spells a mark looks like the mark."""
        return "".join(self.pieces(messages, answer))

    def encode(self, tokeniser: Tokeniser, messages: Sequence[Mapping[str, str]], answer: bool = True) -> list[int]:
        """The tokens of a conversation; marks in the contents of messages are plain characters."""
        return tokeniser.encode_pieces(self.pieces(messages, answer))

    def end(self, tokeniser: Tokeniser) -> list[int]:
        """The mark after the assistant's messages; [] if it is not a single token."""
        mark = tokeniser.encode_pieces([self.around[ASSISTANT][1].strip()])
        return mark if len(mark) == 1 else []

    @property
    def template(self) -> str:
        """The format as a Jinja program, with the texts of `text`; `recognise_chat` finds the format in it."""
        before, after = self.joins.split("{}") if self.joins else ("", "")
        own = "".join((self.around[SYSTEM][0], self.system, self.around[SYSTEM][1])) if self.system else ""
        places = {
            "AROUND": self.around, "BEGINS": self.begins, "OWN": own, "ANSWERS": self.answers, "STRIPS": self.strips,
            "JOINS": bool(self.joins), "BEFORE": before, "AFTER": after,
        }  # fmt: skip
        return re.sub("[A-Z]+", lambda place: json.dumps(places[place[0]], ensure_ascii=False), JINJA)


def _same(before: str, after: str) -> dict[str, tuple[str, str]]:
    """The texts around messages, where {} is the role."""
    return {role: (before.replace("{}", role), after) for role in ROLES}


def _mistral(name: str, first: str, last: str, marks: tuple[str, ...]) -> ChatFormat:
    around = {USER: (f"[INST]{first}", f"{last}[/INST]"), ASSISTANT: (" " if first else "", "</s>")}
    return ChatFormat(name, around, marks, begins="<s>", joins="{}\n\n")


CHATML = ChatFormat(
    "chatml", _same("<|im_start|>{}\n", "<|im_end|>\n"), ("<|im_start|>", "<|im_end|>"),
    answers="<|im_start|>assistant\n",
)  # fmt: skip
LLAMA3 = ChatFormat(
    "llama3", _same("<|start_header_id|>{}<|end_header_id|>\n\n", "<|eot_id|>"), ("<|start_header_id|>", "<|eot_id|>"),
    begins="<|begin_of_text|>", answers="<|start_header_id|>assistant<|end_header_id|>\n\n", strips=True,
)  # fmt: skip
LLAMA2 = ChatFormat(
    "llama2", {USER: ("<s>[INST] ", " [/INST]"), ASSISTANT: (" ", " </s>")}, ("<<SYS>>", "[INST]"), strips=True,
    joins="<<SYS>>\n{}\n<</SYS>>\n\n",
)  # fmt: skip
ZEPHYR = ChatFormat(
    "zephyr", _same("<|{}|>\n", "</s>\n"), ("<|user|>", "<|assistant|>"), others=("<|end|>",), answers="<|assistant|>\n"
)
FORMATS = {
    one.name: one
    for one in (
        CHATML, LLAMA3, LLAMA2, ZEPHYR,
        _mistral("mistral", " ", " ", marks=("[INST] ", " [/INST]")),
        _mistral("mistral-v3", " ", "", marks=("[INST] ", "[/INST]")),
        _mistral("mistral-tekken", "", "", marks=("[INST]", "[/INST]")),
    )
}  # fmt: skip
ESCAPES = {r"\n": "\n", r"\t": "\t", r"\\": "\\"}  # of texts in Jinja
OWN_SYSTEM = re.compile(r"<\|im_start\|>system(?:\n|\\n)([^{}<>'\"]+)<\|im_end\|>")  # a text, not an expression


def recognise_chat(template: str) -> ChatFormat | None:
    """The format of a chat template in Jinja, by its marks; None for an unknown one.

    A ChatML template may have a message of the system for conversations without one, which is kept.
    """
    for known in FORMATS.values():
        if all(mark in template for mark in known.marks) and not any(mark in template for mark in known.others):
            system = OWN_SYSTEM.search(template) if known is CHATML else None
            if not system:
                return known
            text = re.sub(r"\\[nt\\]", lambda escape: ESCAPES[escape[0]], system[1])
            return known._replace(system=text[:LONGEST])
    return None
