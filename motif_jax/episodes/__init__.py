"""Episodes: assembling their steps from rollouts, and playing them back from seed and actions."""
