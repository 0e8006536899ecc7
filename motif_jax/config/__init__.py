"""The config: declarations of its values, the files that set them, and their help. Never loads JAX."""
