// Package e2e tests what users do with Sluice, on real nodes and with the
// chart installed as they would install it: every example of the repository,
// the ways in which a population may be disturbed, and the fence around the
// manager's identity.
//
// All tests share one cluster and one installation, each in a namespace of its
// own. A test that fails prints the events of its namespace and the manager's
// log.
package e2e
