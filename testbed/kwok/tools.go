//go:build tools

// Keeps `go mod tidy` from dropping what we build: kwok, the kubelet that runs nothing.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
