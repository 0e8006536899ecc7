"""What the hosts of a training run tell each other before each update, so that all stop at the same one.

Whatever hosts do together they must do in the same order, or all wait for ever. So a host that fails says so where the
others ask next; an error inside of an update, which is all hosts' work, needs no telling: it fails on all of them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from types import TracebackType

import numpy as np

from motif_jax.parallel import from_every_host, host
from motif_jax.structs import UserError


class Wish(enum.IntEnum):
    """What a host wants."""

    GO_ON = 0
    END = 1  # it was trained for long enough
    STOP = 2  # it was asked to, by a signal
    FAILED = 3


class Hosts:
    """The hosts of a run, in step; use as a context manager around all that one of them could fail at."""

    def __init__(self) -> None:
        """Only a look at who is there."""
        self.me, self.count = host()
        self._over = False  # nobody listens any more

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, _: type | None, error: BaseException | None, __: TracebackType | None) -> None:
        if self.count > 1 and isinstance(error, Exception) and not self._over:
            self._gather(Wish.FAILED, (0, 0))

    def ask(self, wish: Wish, numbers: Iterable[int] = (0, 0)) -> tuple[Wish, np.ndarray]:
        """The strongest wish of all hosts, and the numbers of the others. [hosts - 1, 2]

        Where it is not to go on, this was the last question. Raises UserError if another host has failed.
        """
        wishes, all_numbers = self._gather(wish, numbers)
        strongest = Wish(wishes.max())
        self._over = strongest != Wish.GO_ON
        if strongest == Wish.FAILED:
            raise UserError(
                f"host {wishes.argmax()} of {self.count} has failed; what it wrote itself says why "
                "(--config.distributed)"
            )
        return strongest, np.delete(all_numbers, self.me, 0)

    def _gather(self, wish: Wish, numbers: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
        found = from_every_host(np.array([wish, *numbers], np.int32))
        return found[:, 0], found[:, 1:]
