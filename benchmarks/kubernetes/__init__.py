"""What Sickbay costs on Kubernetes, on a real control plane: `make bench-kubernetes`. One file per bar of issue 3."""
