"""JAX's devices: meshes, hosts, checkpoints, releases.

In: trees of arrays, and functions to compile. Out: the same trees on devices, on all hosts, or on disk.
"""
