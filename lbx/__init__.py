"""lbx: how well does this local model understand long text? Measured on machines with no internet."""

__version__ = "0.1.0"
