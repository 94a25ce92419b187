// Package bench measures Sluice as a user would: on real control planes and
// nodes, with the real manager, each figure beside its floor, which is what
// Kubernetes alone takes for the same in the same run. It decides nothing but
// what to measure; see docs/performance.md for what the figures mean.
package bench
