"""The operating system: startup and exit, files, locks, errors, servers, metrics, several runs. Never loads JAX.

Paths, bytes and replies of servers in; checked values, complete files and one-sentence errors out.
"""
