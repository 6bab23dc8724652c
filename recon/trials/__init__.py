"""What a device is put through by `recon doctor`: operators, precision, training, checkpoints, timings; one report."""
