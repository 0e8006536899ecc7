"""Toy games for tests, most of which misbehave. Named to the program as `faulty_games:Raising` and so on."""

import ctypes
import errno
import os
import time

from motif_jax.envs.toy import SIZE, ToyGame


class Raising(ToyGame):
    def step(self, action):
        if self._steps == 7:
            raise KeyError("a bug in the game")
        return super().step(action)


class PaysNaN(ToyGame):
    paid = float("nan")

    def step(self, action):
        super().step(action)
        return self.paid


class PaysTooMuch(PaysNaN):
    paid = 1e39


class PaysNothing(PaysNaN):
    paid = None


class Refused(ToyGame):
    def step(self, action):
        raise OSError(errno.ENOSPC, "No space left on device", "/some/file")


class Crashing(ToyGame):
    """Takes its process along in episode 3."""

    def step(self, action):
        if self._episode == 3 and self._steps == 4:
            ctypes.string_at(0)  # a real segmentation fault
        return super().step(action)


class Hanging(ToyGame):
    """Hangs in episode 3, the first time that it is played (the file HANG_ONCE names its process)."""

    def step(self, action):
        if self._episode == 3 and self._steps == 4:
            marker = os.environ["HANG_ONCE"]
            if not os.path.exists(marker):
                with open(marker, "w") as file:
                    file.write(str(os.getpid()))
                time.sleep(10_000)
        return super().step(action)


class StairsInTheEast(ToyGame):
    """The stairs are straight to the right of the hero. Perfect play takes 2.5 steps on average."""

    def reset(self, seed, episode=0):
        super().reset(seed, episode)
        self._hero = (seed.core // 2 % (SIZE - 1), seed.core // 10 % SIZE)
        self._stairs = (SIZE - 1, self._hero[1])
        self._counts.clear()
        self._show(b"")


class SlowOnce(ToyGame):
    """Takes a while over every step of the episode SLOW_EPISODE."""

    def step(self, action):
        if self._episode == int(os.environ["SLOW_EPISODE"]):
            time.sleep(0.05)
        return super().step(action)


class Restless(ToyGame):
    """Is never the same twice."""

    def reset(self, seed, episode=0):
        super().reset(seed, episode)
        self._hero = (os.urandom(1)[0] % SIZE, os.urandom(1)[0] % SIZE)
        self._stairs = ((self._hero[0] + 2) % SIZE, self._hero[1])
        self._show(b"")
