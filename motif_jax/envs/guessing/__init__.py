"""Visual dialogue: the agent asks questions about a picture of which it only knows a caption.

`scenes` has the pictures, `answerers` who answers (here, or a server in the original's wire format), `game` and `world`
are what `envs/world.py` asks for, `players` the scripted players.
"""
