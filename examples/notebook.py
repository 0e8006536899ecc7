# %% [markdown]
"""
# An agent and its learnt reward
Run this file as a whole, or cell by cell in an editor that knows `# %%`; `jupytext --to ipynb` makes a notebook of it.
It loads the release that comes with the program. A workdir of yours works as well: `load_policy("runs/quickstart")`.
"""

# %%
import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

import motif_jax.envs  # noqa: F401  (makes the games known to gymnasium)
from motif_jax import load_policy, load_reward

policy, reward = load_policy("motif_jax/quickstart"), load_reward("motif_jax/quickstart")
print(policy)

# %% [markdown]
# ## What the reward likes
# It reads nothing but NetHack's messages. Values are in standard deviations from the mean of its dataset.

# %%
messages = ["You kill the newt!", "You see here a fortune cookie.", "It's solid stone.", ""]
for message, value in zip(messages, reward(messages).normalised, strict=True):
    print(f"{value:+6.2f}  {message!r}")

# %% [markdown]
# ## One game

# %%
env = gymnasium.make("motif_jax/NetHackScore-v1")
observation, _ = env.reset(seed=7)
policy.begin()
seen, score = [], 0.0
for _ in range(100):
    act = policy(observation)  # the action, the probabilities of all actions, and the value that is expected
    observation, gained, ended, cut, _ = env.step(act.action)
    score += float(gained)
    seen.append(bytes(observation["event_message"]).rstrip(b"\0").decode("latin-1"))
    if ended or cut:
        break
env.close()
print(f"one game: score {score:.0f} after {len(seen)} steps; the message that it likes best:")
print(f"  {seen[int(np.argmax(reward(seen).normalised))]!r}")

# %% [markdown]
# ## Many games at once
# A vector environment of gymnasium's gives the observations of all games, and the policy answers them in one step.

# %%
GAMES = 8
same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}  # a game that has ended shows the next one's first observation
many = gymnasium.make_vec("motif_jax/NetHackScore-v1", GAMES, vectorization_mode="sync", vector_kwargs=same_step)
observations, _ = many.reset(seed=7)
policy.begin(GAMES)
scores = np.zeros(GAMES)
for _ in range(100):
    acts = policy(observations)  # acts.action [8], acts.probabilities [8, 23], acts.value [8]
    observations, gained, ended, cut, _ = many.step(acts.action)
    policy.restart(ended | cut)
    scores += gained
many.close()
print(f"{GAMES} games: {scores.mean():.1f} points each in 100 steps")
