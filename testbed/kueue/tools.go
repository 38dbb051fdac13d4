//go:build tools

// Keeps `go mod tidy` from dropping what we build: the real Kueue.
package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
