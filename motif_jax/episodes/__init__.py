"""Assembles the steps of episodes from rollouts, and plays episodes back from seed and actions."""
