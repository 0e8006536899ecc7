"""The networks, as Flax NNX modules. Each class documents its inputs and outputs."""
