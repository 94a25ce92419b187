// Package worker is the contract between a worker container and the manager,
// for any worker image and for Sluice's own.
//
// A worker finds its target and, if its template has any, its files through
// the environment, writes, and ends. Exit code 0 means filled and verified. The
// termination message may hold a Result as JSON; without one the exit code
// alone counts. Lines of JSON on standard output may tell progress; anything
// else there is a log.
//
// The package imports the standard library only, because programs that handle
// data import it and nothing of Kubernetes.
package worker
