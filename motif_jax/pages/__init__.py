"""Self-contained HTML pages: building blocks, charts, and their style and scripts."""
