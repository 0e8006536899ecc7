"""`policy/opinions.jsonl`: who said what of which caption, when, and how long it took."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from motif_jax.annotation.stream import Answered
from motif_jax.system.files import json_line
from motif_jax.system.locks import open_in_place
from motif_jax.system.metrics import drop_rows_after

LONGEST = 300  # characters of what was said


class OpinionLog:
    """Appends answers to a file, which is opened with the first of them; `cut_after` goes before that."""

    def __init__(self, path: Path, judge: str):
        """`judge`: who answers."""
        self._path, self._judge = path, judge
        self._file: IO[Any] | None = None

    def write(self, answered: Iterable[Answered], goal: str, step: int) -> None:
        """Appends answers about a goal that came in the update which ended at this step."""
        lines = []
        for one in answered:
            question, said = one.item.question, one.answer.said
            row = {"env_steps": step, "caption": question.first}
            row |= {} if question.second is None else {"other": question.second}
            row |= {"yes": one.answer.yes, "goal": goal, "by": self._judge, "attempt": one.item.attempt + 1}
            row |= {"cached": True} if one.cached else {"seconds": round(one.seconds, 3)}
            row |= {"said": said if len(said) <= LONGEST else f"{said[: LONGEST // 2]} ... {said[-LONGEST // 2 :]}"}
            lines.append(json_line(row))
        if lines:
            if self._file is None:
                self._file = open_in_place(self._path, "a")
            self._file.write("".join(lines))
            self._file.flush()

    def cut_after(self, step: int) -> None:
        """Removes what came later than the checkpoint from which training goes on."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        drop_rows_after(self._path, step)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
