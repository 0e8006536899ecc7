"""Toy games that misbehave, for the pool to cope with. Named to it as `faulty_games:Raising` and so on."""

import ctypes
import errno
import os
import time

from motif_jax.envs.toy import ToyGame


class Raising(ToyGame):
    def step(self, action):
        if self.steps == 7:
            raise KeyError("a bug in the game")
        return super().step(action)


class Refused(ToyGame):
    def step(self, action):
        raise OSError(errno.ENOSPC, "No space left on device", "/some/file")


class Crashing(ToyGame):
    """Takes its process along in episode 3."""

    def step(self, action):
        if self.episode == 3 and self.steps == 4:
            ctypes.string_at(0)  # a real segmentation fault
        return super().step(action)


class Hanging(ToyGame):
    """Hangs in episode 3, the first time that it is played (the file HANG_ONCE names its process)."""

    def step(self, action):
        if self.episode == 3 and self.steps == 4:
            marker = os.environ["HANG_ONCE"]
            if not os.path.exists(marker):
                with open(marker, "w") as file:
                    file.write(str(os.getpid()))
                time.sleep(10_000)
        return super().step(action)
