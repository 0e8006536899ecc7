"""What happened in an episode: its pieces put together, and its playback from seed and actions."""
