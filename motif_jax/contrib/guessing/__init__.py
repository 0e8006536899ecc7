"""Visual dialogue: the agent knows the caption of a picture (`scenes`) and asks questions about it (`answerers`)."""
