//go:build tools

// Keeps `go mod tidy` from dropping what we build: the real JobSet controller.
package tools

import _ "sigs.k8s.io/jobset"
