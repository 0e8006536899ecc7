"""The config: declarations of its values, config files, and help. Does not load JAX."""
