"""A module of a user's that cannot be imported."""

raise OverflowError("too many corridors")
