package template

import (
	"fmt"
	"strings"
)

// A part is a stretch of a template text.
type part struct {
	kind partKind
	// text is the literal text, or the source of the expression.
	text string
}

type partKind int

const (
	// literal is text of the template's author, as it would stand in a Pod.
	literal partKind = iota
	// escape is ${, written $${.
	escape
	// expression is the CEL between ${ and }.
	expression
)

// parse splits s into literals and ${expressions}. $${ is a literal ${. Braces,
// string literals and comments inside an expression are respected, so that
// ${ {'a': '}'}.a } is one expression. The error says at which character the
// text is wrong.
func parse(s string) ([]part, error) {
	var parts []part
	start := 0 // of the literal that is being read
	add := func(end int, p part) {
		if start < end {
			parts = append(parts, part{literal, s[start:end]})
		}
		parts = append(parts, p)
	}
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "$${"):
			add(i, part{escape, "${"})
			i += len("$${")
			start = i
		case strings.HasPrefix(s[i:], "${"):
			n, ok := expressionEnd(s[i+2:])
			if !ok {
				return nil, fmt.Errorf("the ${ at character %d has no closing }; a literal ${ is written $${", i+1)
			}
			expr := strings.TrimSpace(s[i+2 : i+2+n])
			if expr == "" {
				return nil, fmt.Errorf("the ${} at character %d holds no expression; a literal ${ is written $${", i+1)
			}
			add(i, part{expression, expr})
			i += 2 + n + 1
			start = i
		default:
			i++
		}
	}
	if start < len(s) {
		parts = append(parts, part{literal, s[start:]})
	}
	return parts, nil
}

// expressionEnd returns the index of the brace in s that closes an expression
// which starts at index 0.
func expressionEnd(s string) (int, bool) {
	depth := 0
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '}' && depth == 0:
			return i, true
		case c == '}':
			depth--
			i++
		case c == '{':
			depth++
			i++
		case c == '"' || c == '\'':
			n, ok := stringEnd(s[i:], isRaw(s[:i]))
			if !ok {
				return 0, false
			}
			i += n
		case strings.HasPrefix(s[i:], "//"):
			n := strings.IndexByte(s[i:], '\n')
			if n < 0 {
				return 0, false
			}
			i += n
		default:
			i++
		}
	}
	return 0, false
}

// stringEnd returns the length of the CEL string literal at the start of s,
// which begins with its opening quote.
func stringEnd(s string, raw bool) (int, bool) {
	quote := s[:1]
	if strings.HasPrefix(s, strings.Repeat(quote, 3)) {
		quote = s[:3]
	}
	for i := len(quote); i < len(s); i++ {
		if !raw && s[i] == '\\' {
			i++
			continue
		}
		if strings.HasPrefix(s[i:], quote) {
			return i + len(quote), true
		}
	}
	return 0, false
}

// isRaw says whether a string literal that follows before is a raw one: r'…',
// or with b for bytes, in any case and order.
func isRaw(before string) bool {
	word := len(before)
	for word > 0 && isIdentifierByte(before[word-1]) {
		word--
	}
	switch strings.ToLower(before[word:]) {
	case "r", "br", "rb":
		return true
	}
	return false
}

func isIdentifierByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// escapeDollar doubles every $ so that the kubelet's expansion of env values
// gives back s exactly.
func escapeDollar(s string) string { return strings.ReplaceAll(s, "$", "$$") }

// openReference says whether the kubelet, having read s, could still be inside a
// $(VAR) reference that later text would close.
func openReference(s string) bool {
	for i := 0; i+1 < len(s); i++ {
		if s[i] != '$' {
			continue
		}
		switch s[i+1] {
		case '$':
			i++
		case '(':
			end := strings.IndexByte(s[i+2:], ')')
			if end < 0 {
				return true
			}
			i += 2 + end
		}
	}
	return false
}
