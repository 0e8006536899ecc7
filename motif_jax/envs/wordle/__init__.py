"""Wordle as a benchmark of offline reinforcement learning with language: guess a word of five letters in six tries."""
