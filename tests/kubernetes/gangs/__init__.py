"""Training jobs on a real control plane: real Job, JobSet and scheduler; kubelets are kwok's, which run nothing."""
