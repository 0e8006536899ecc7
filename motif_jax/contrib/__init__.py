"""Features that few experiments need, a folder for each, which plugins.py finds. No room imports them."""
