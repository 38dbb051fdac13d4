"""Beside the real Kueue and the real Karpenter: one path each with every run, the rest in `make soak`."""
