"""The loop that all offline training shares: epochs over token batches, evaluation, checkpoints, resuming.

It is no stage by itself. A stage that learns from transcripts makes a `training.Job` and gives it to `training.train`.
"""
