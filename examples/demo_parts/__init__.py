"""The parts of demo.py: data sources, printed output, the picture, and the comparison with icechunk."""
