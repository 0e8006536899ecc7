"""Worlds, networks, rewards and formats that are found by name, as a user's own (names.py); no room imports them."""
