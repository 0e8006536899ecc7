"""Comments: the world shows a post, the agent writes one comment on it, and the comment is scored."""
