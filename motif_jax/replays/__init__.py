"""Replays of episodes: every frame of the terminal with actions and rewards; drawn and played."""
