// Package population tests the manager against the real API server and
// controllers, with simulated nodes and storage: the real program runs beside
// the cluster and every request it makes is in the audit log.
package population
