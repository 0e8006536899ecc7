"""Episodes to look at: every frame of the terminal with what the agent did and was paid; drawn, played, exported."""
