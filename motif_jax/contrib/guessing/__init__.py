"""Visual dialogue: the agent knows the caption of a picture and asks questions about it.

`scenes` has the pictures, `answerers` the local answerer and a client of a server in the original's wire format,
`world` the world and its game.
"""
