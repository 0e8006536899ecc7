"""The format `manual`: right actions for prompts of BabyAI-Text, made from templates (envs/babyai/manual.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.envs.babyai.manual import find_manual, make_examples, read_manual
from motif_jax.envs.babyai.words import all_words
from motif_jax.structs import Episode
from motif_jax.transcripts.imports import TranscriptFormat
from motif_jax.transcripts.store import decision_point, vocabulary


class Manual(TranscriptFormat):
    """All words of the world, then the examples of manuals."""

    prompts = True

    def find(self, names: Sequence[str]) -> list[Path]:
        """See `TranscriptFormat`; a name without a path is of a shipped manual."""
        return [find_manual(name) for name in names]

    def check(self, names: Sequence[str], env: Mapping[str, Any]) -> None:
        for file in self.find(names):
            read_manual(file)

    def about(self, env: Mapping[str, Any], seed: int) -> dict[str, Any]:
        return {"window": env["babyai"]["window"]}

    def episodes(self, files: Sequence[Path], env: Mapping[str, Any], seed: int) -> Iterator[Episode]:
        yield from vocabulary(all_words())
        lessons = [lesson for file in files for lesson in read_manual(file)]
        for example in make_examples(lessons, env["babyai"]["window"]):
            yield decision_point(example.prompt, example.action)


MANUAL = Manual()
