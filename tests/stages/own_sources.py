"""Reward sources of a user's own, as `--config.policy.sources` names them."""

import numpy as np

from motif_jax.rewards.source import RewardSource


class Stairs(RewardSource):
    """1 for a message of stairs; counts in its own state how many batches it has seen."""

    observations = ("event_message",)

    def __init__(self):
        self.batches = np.zeros(1, np.int32)

    @classmethod
    def rebuild(cls, arrays, facts):
        source = cls()
        source.restore(arrays, facts)
        return source

    def rewards(self, rollouts):
        return (rollouts["event_message"][..., :11] == np.frombuffer(b"You descend", np.uint8)).all(-1)

    def advance(self, batch, hosts):
        self.batches = self.batches + 1

    def arrays(self):
        return {"batches": self.batches}

    def restore(self, arrays, facts):
        self.batches = np.array(arrays["batches"])

    def figures(self):
        return {"stairs_batches": float(self.batches[0])}


class Unsaved(RewardSource):
    state, known = {}, {}

    def rewards(self, rollouts):
        raise AssertionError("a game has begun")

    def arrays(self):
        return self.state

    def facts(self):
        return self.known


class OfTexts(Unsaved):
    state = {"seen": np.array(["newt"])}


class OfSets(Unsaved):
    known = {"seen": {"newt"}}


class Failing(RewardSource):
    batches = 0

    def rewards(self, rollouts):
        return np.zeros_like(rollouts["reward"])

    def advance(self, batch, hosts):
        self.batches += 1
        if self.batches == 3:
            raise LookupError("of the third batch")
