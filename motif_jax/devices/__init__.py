"""JAX's devices: trees of arrays in; the same trees on meshes, on all hosts, in checkpoints and in releases out."""
