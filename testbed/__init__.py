"""A real Kubernetes control plane on loopback, for tests, benchmarks and `make demo-kubernetes`. Start at cluster.py.

Nothing in src/sickbay may know it. What it runs is built by tools/testbed and kept outside of the repository.
"""
