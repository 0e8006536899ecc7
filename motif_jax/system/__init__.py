"""The operating system: startup and exit, files, locks, errors, servers, metrics, several runs. Never loads JAX.

In: paths, bytes, replies of servers. Out: checked values, complete files, one sentence for each error.
"""
