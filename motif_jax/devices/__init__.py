"""JAX's devices: meshes, hosts, checkpoints, releases.

In: trees of arrays and compiled functions. Out: the same on all devices of all hosts, or on disk.
"""
