// Package images makes the container images of an embedded cluster without a
// container engine and hands them out without a registry of anybody's.
//
// Build compiles the static binaries, wraps each into an OCI image and keeps
// all of them in one OCI image layout: the same input gives the same digest,
// and what has not changed is not written again. Serve answers pulls from that
// layout over the OCI distribution protocol, read-only. WriteMirrorConfig
// tells containerd to ask there first, whatever registry a reference names, so
// that manifests with their usual names and pull policies work unchanged on a
// machine that reaches no registry.
//
//	binaries, busybox ──Build──▶ layout folder ──Serve──▶ containerd (hosts.toml)
//	                                  └──Save──▶ one archive per image
package images
