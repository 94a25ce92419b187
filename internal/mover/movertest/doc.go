// Package movertest holds the contracts of package mover as tests that every
// source and every sink passes: what arrives, what is refused, and that nothing
// leaves the target whatever an entry is called.
package movertest
