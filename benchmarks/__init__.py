"""What it costs, measured as ratios between things done in the same run. `make bench` runs them all."""
