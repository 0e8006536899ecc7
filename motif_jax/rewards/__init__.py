"""From preferences to rewards: loss and training step, data in batches, statistics. Networks come as arguments."""
