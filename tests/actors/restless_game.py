"""A game that is never the same twice."""

import os

from motif_jax.envs.toy import SIZE, ToyGame


class Restless(ToyGame):
    def reset(self, seed, episode=0):
        super().reset(seed, episode)
        self._hero = (os.urandom(1)[0] % SIZE, os.urandom(1)[0] % SIZE)
        self._stairs = ((self._hero[0] + 2) % SIZE, self._hero[1])
        self._show(b"")
