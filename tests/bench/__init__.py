"""Benchmarks: ours, the peer (smartcomment 0.1.2) and bare SDK spans, side by side. `make bench` runs them all."""
