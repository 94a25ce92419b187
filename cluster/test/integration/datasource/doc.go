// Package datasource holds the tests of what the API server itself promises
// about a claim's data source: the rules of KEP-1495 for spec.dataSource and
// spec.dataSourceRef. Sluice builds on every one of them, so a Kubernetes that
// changes one should fail here first, by name.
package datasource
