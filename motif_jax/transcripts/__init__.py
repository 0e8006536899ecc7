"""Recorded conversations: episodes of text turns in, token batches out. Uses NumPy, not JAX.

`store` keeps episodes on disk, also moments of a game as prompts and actions; `imports` reads and writes other formats;
`render` turns texts into tokens, in batches for training and live during a conversation.
"""
