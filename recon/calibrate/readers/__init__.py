"""One module per calibration format; `sniff` tells which one a file is in by what it contains."""
