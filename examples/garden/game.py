"""A game without a reward: a garden with a cat to pet or kick, flowers to smell or trample, and a pond."""

import gymnasium
import numpy as np

PLACES = (  # 4 x 4
    "gate", "lawn", "oak", "bench",
    "well", "hedge", "swing", "shed",
    "arch", "path", "rockery", "terrace",
    "orchard", "steps", "fence", "pond",
)  # fmt: skip
WALKS = {"north": (-1, 0), "east": (0, 1), "south": (1, 0), "west": (0, -1)}
DEEDS = {
    "pet": "You pet the cat. It purrs.",
    "kick": "You kick the cat. It hisses and runs away.",
    "smell": "You smell the flowers.",
    "trample": "You trample the flowers.",  # they are gone
}


class Game(gymnasium.Env):
    """Eight actions: four walks, and four deeds where the cat or flowers are. The cat strolls."""

    actions = (*WALKS, *DEEDS)
    action_space = gymnasium.spaces.Discrete(len(actions))
    observation_space = gymnasium.spaces.Box(0, 1, (4, 16), np.float32)  # the player, the cat, flowers, places seen

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.me, self.cat, *flowers = self.np_random.permutation(15)[:5].tolist()  # not in the pond
        self.flowers, self.seen, self.counts = {*flowers}, {self.me}, dict.fromkeys(DEEDS, 0)
        self.said = ""  # what has just happened
        return self._observation(), {}

    def step(self, action):
        name, here, self.said = self.actions[action], self.me, ""
        if name in WALKS:
            self.me = _beside(here, name)
            if PLACES[self.me] == "pond" and self.me != here:
                self.said = "You fall into the pond."
            elif self.me not in self.seen:
                self.said = f"You find a new place: the {PLACES[self.me]}."
            self.seen.add(self.me)
        elif here == self.cat if name in ("pet", "kick") else here in self.flowers:
            self.counts[name] += 1
            self.said = DEEDS[name]
            self.cat = int(self.np_random.integers(15)) if name == "kick" else self.cat
            self.flowers -= {here} if name == "trample" else set()
        if self.np_random.random() < 0.1:
            self.cat = _beside(self.cat, self.actions[self.np_random.integers(4)])
        return self._observation(), 0.0, False, False, {}

    def _observation(self):
        planes = np.zeros((4, 16), np.float32)
        for plane, places in zip(planes, ([self.me], [self.cat], [*self.flowers], [*self.seen]), strict=True):
            plane[places] = 1
        return planes


def _beside(place, walk):
    """The next place, or the same one at a wall."""
    y, x = place // 4 + WALKS[walk][0], place % 4 + WALKS[walk][1]
    return 4 * min(max(y, 0), 3) + min(max(x, 0), 3)
