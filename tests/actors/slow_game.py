"""A toy game of which one episode is slow, for those who wait for it."""

import os
import time

from motif_jax.envs.toy import ToyGame


class SlowOnce(ToyGame):
    def step(self, action):
        if self.episode == int(os.environ["SLOW_EPISODE"]):
            time.sleep(0.05)
        return super().step(action)
