// Package lintrules tests .golangci.yml itself: it breaks each of the rules that
// this repository made up, in a throw-away copy of its layout, and fails if one
// of the breaches is not reported or if something innocent is.
package lintrules
