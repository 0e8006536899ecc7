"""The loop that all offline training shares: epochs over token batches, evaluation, checkpoints, resuming.

It is no stage by itself. A stage that learns from transcripts makes a `training.Job` of its `batches` and gives it to
`running.run_offline`, which does what surrounds the loop of `training`: hosts, locks, the result.
"""
