"""The scoring behind `scripts/bench_recon`: captures with what is known of them, and one file per kind of score."""
