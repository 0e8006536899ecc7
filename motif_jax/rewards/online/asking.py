"""The first host's part: plans questions for the judge, fetches answers, records them, and says when the judge is down.

The judge never holds up training. While it is down, or next to none of its answers can be read, one line a minute says
so.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from motif_jax.annotation.annotator import Incomplete
from motif_jax.annotation.readable import Readable
from motif_jax.annotation.stream import Answered, Direct, Stream
from motif_jax.console import print_line
from motif_jax.rewards.online.figures import Tally
from motif_jax.rewards.online.judge import Judges
from motif_jax.rewards.online.log import OpinionLog
from motif_jax.rewards.online.plan import AHEAD, items, limit
from motif_jax.rewards.online.settings import SECTION
from motif_jax.rewards.online.store import Store
from motif_jax.structs import UserError

SAY_EVERY_S = 60.0
FILE = "opinions.jsonl"  # in the policy's directory


class Asking:
    """Asks a judge about one goal at a time."""

    def __init__(self, config: ConfigDict, judges: Judges, folder: Path, goal: str):
        """Opens the judge of the first goal; raises UserError if it does not answer."""
        self._section, self._judges = config.policy.online, judges
        self._log = OpinionLog(folder / FILE, judges.name)
        self._goal, self._begun = goal, False
        self._judge: Stream | Direct = judges.open(goal, 0, at_once=True)
        self.tally = Tally()
        self.readable = Readable("train_policy")
        self._came = 0  # answers fetched at once, the last time
        self._down_s = self._said_s = 0.0

    def go_on(self, goal: str, asked: int, step: int) -> None:
        """Continues from a checkpoint: about this goal, after so many questions and steps."""
        self._begin_log(step)
        self._judge.taken = asked
        self.turn(goal)

    def turn(self, goal: str) -> None:
        """From now on the judge is asked about this goal; what is under way about another is given up."""
        if goal != self._goal:
            asked = self._judge.taken - self._judge.under_way
            self._judge.close()
            self._goal, self._judge = goal, self._judges.open(goal, asked, at_once=False)
            self.tally.forget()

    def _begin_log(self, step: int) -> None:
        """Removes what a run that was killed has recorded after the checkpoint from which training goes on."""
        if not self._begun:
            self._log.cut_after(step)
            self._begun = True

    @property
    def is_immediate(self) -> bool:
        """Whether all that is planned is answered when `plan` returns."""
        return self._judge.immediate

    def answers(self, step: int) -> list[Answered]:
        """What has come back since the last call; it is recorded as of this step."""
        self._watch()
        self._begin_log(0)
        found = self._judge.answers()
        self._log.write(found, self._goal, step)
        self.tally.answers(found)
        for one in found:
            self.readable.take(one.answer)
        self._came = len(found)
        return found

    def plan(self, store: Store, ordered: np.ndarray, steps: int) -> None:
        """Plans what to ask next, after so many steps: questions of the store that wait, the most urgent first."""
        self.tally.wait(ordered)
        most = limit(self._section.labels_per_1000_steps, steps)
        if not self._judge.immediate:
            ordered = ordered[: AHEAD + 4 * self._came]
        try:
            self._judge.plan(items(store, ordered), most)
        except Incomplete as failed:
            raise UserError(f"{failed}; a synchronous run waits for its judge (--config.policy.synchronous)") from None

    def _watch(self) -> None:
        """Says once a minute that the judge is down, and when it is back."""
        patience_s, silent_s = self._section.patience_s, self._judge.silent_s
        now = time.monotonic()
        if silent_s <= patience_s:
            if self._down_s:
                print_line(f"train_policy: the judge answers again, after {self._down_s:,.0f} seconds")
            self._down_s = 0.0
            return
        reason = self._judge.problem or "its answers do not come"
        if self._section.when_down == "stop":
            raise UserError(f"the judge has said nothing for {silent_s:,.0f} s: {reason} ({SECTION}.when_down=stop)")
        if not self._down_s or now - self._said_s > SAY_EVERY_S:
            self._said_s = now
            print_line(
                f"train_policy: the judge has said nothing for {silent_s:,.0f} s, and training goes on without new "
                f"labels: {reason}"
            )
        self._down_s = silent_s

    def figures(self) -> dict[str, float]:
        """Since the last call."""
        judge = self._judge
        return self.tally.figures() | {
            "under_way": float(judge.under_way),
            "down_s": self._down_s,
            "failures": float(judge.failures),
            "strangers": float(judge.strangers),
        }

    def close(self) -> None:
        """Ends the judge."""
        self._judge.close()
        self._log.close()
