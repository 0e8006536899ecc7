"""HTML pages that work offline, in one file each: building blocks, charts, and the style and scripts they include."""
