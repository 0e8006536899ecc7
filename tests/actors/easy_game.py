"""A toy game that is learnt in seconds, for those who need a policy that plays well."""

from motif_jax.envs.toy import SIZE, ToyGame


class StairsInTheEast(ToyGame):
    """The stairs are straight to the right of the hero. Perfect play takes 2.5 steps on average."""

    def reset(self, seed, episode=0):
        super().reset(seed, episode)
        self._hero = (seed.core // 2 % (SIZE - 1), seed.core // 10 % SIZE)
        self._stairs = (SIZE - 1, self._hero[1])
        self._show(b"")
        self.message_counts = {b"": 1}
        self.message_count = 1
