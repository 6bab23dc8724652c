"""Other people's Gaussian files: one module per format, literal layout tables, bounded readers."""
