"""From preferences to rewards: loss, training step, statistics; and the sources that reward an agent (source.py)."""
