"""HTML pages that work offline, in one file each: building blocks, charts, the assets that they carry."""
