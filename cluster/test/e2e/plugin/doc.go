// Package plugin tests the example of a plugin on a real node, with the chart
// installed by the example's own values: a side-car of the manager computes the
// workers.
//
// It has a cluster of its own, since side-cars are part of the installation that
// other tests share.
package plugin
