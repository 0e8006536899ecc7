"""From rollouts to better parameters: V-trace, GAE, losses, one update; Q-learning from a replay buffer.

Network and reward come as arguments.

In: rollouts, cut along the batch among the devices. Out: `update(state, constants, rollouts) -> (state, metrics)`, a
pure function for `parallel.map_update`; a stage compiles it, owns the state and saves it.
"""
