//go:build tools

// Keeps `go mod tidy` from dropping what we build: the real controller of Kubeflow's TrainJob.
package tools

import _ "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"
