//go:build tools

// Keeps `go mod tidy` from dropping what we build: helm, to render and check our chart.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
