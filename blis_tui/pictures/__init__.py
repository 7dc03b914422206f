"""Pages with pictures: one self-contained HTML file each, to look at in a browser, offline, and to print."""
