"""Charts as SVG, and the figures of reports."""
