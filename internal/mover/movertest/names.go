package movertest

import "strings"

// HostileNames returns paths that no sink may write to, by what is wrong with
// each. Sources and archive readers are tested with them as well.
func HostileNames() map[string]string {
	return map[string]string{
		"Empty":            "",
		"Dot":              ".",
		"Parent":           "..",
		"ParentFile":       "../escape",
		"ParentInside":     "a/../../escape",
		"ParentHarmless":   "a/../b",
		"ParentAtEnd":      "a/..",
		"Absolute":         "/etc/escape",
		"AbsoluteTwice":    "//etc/escape",
		"NUL":              "a\x00b",
		"TrailingSlash":    "a/",
		"LongPath":         strings.Repeat("d/", 2500) + "f",
		"LongName":         strings.Repeat("n", 300),
		"ParentBackHidden": "./../escape",
	}
}

// HostileLinks returns targets that a symbolic link at dir/link may not have.
func HostileLinks() map[string]string {
	return map[string]string{
		"Absolute":      "/etc/passwd",
		"Parent":        "../..",
		"ParentFile":    "../../escape",
		"ParentLater":   "x/../../../escape",
		"ParentBetween": "x/../y",
		"Empty":         "",
		"NUL":           "a\x00b",
	}
}
