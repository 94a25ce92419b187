// Package crds checks the kinds that the chart installs the way the API server
// does: their schemas, the cost of their rules, and objects against both.
package crds
