"""Kubernetes (EKS first): nodes, pods and training jobs behind ports.Platform. One file per verb or noun."""
