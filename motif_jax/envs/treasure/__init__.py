"""The world `treasure`: gold and stairs in a corridor, a problem of two rewards whose optimum is known."""
