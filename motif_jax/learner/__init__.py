"""Policy optimisation from rollouts: V-trace, GAE, losses, one update; Q-learning from a replay buffer.

In: a network, a reward, and rollouts, whose batch is split over the devices. Out: `update(state, frozen, rollouts)
-> (state, metrics)`, a pure function for `mesh.map_update`; a stage compiles it, and owns and saves the state.
"""
