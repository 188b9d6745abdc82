"""Charts as SVG text, and the figures of reports, which are charts with titles and captions."""
