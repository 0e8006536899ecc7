"""The operating system: startup and exit, files, locks, errors, servers, metrics, several runs. Never loads JAX."""
