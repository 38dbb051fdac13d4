//go:build tools

// Keeps `go mod tidy` from dropping what we build: the real Karpenter, with its provider of kwok nodes.
package tools

import _ "sigs.k8s.io/karpenter/kwok"
