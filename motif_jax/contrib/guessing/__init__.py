"""Visual dialogue: the agent knows the caption of a picture and asks questions about it."""
