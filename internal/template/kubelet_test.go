package template

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// kubeletEnv is the environment that a kubelet gives a container: values are
// expanded once, in order, with the variables that stand before them.
func kubeletEnv(env []corev1.EnvVar) map[string]string {
	got := map[string]string{}
	for _, e := range env {
		got[e.Name] = kubeletExpand(e.Value, got)
	}
	return got
}

// kubeletExpand replaces $(VAR) as the kubelet does: $$ is a $, an unknown
// variable stays as it is written, and so does a reference that is never
// closed.
func kubeletExpand(s string, vars map[string]string) string {
	var out strings.Builder
	for s != "" {
		dollar := strings.IndexByte(s, '$')
		if dollar < 0 || dollar == len(s)-1 {
			out.WriteString(s)
			break
		}
		out.WriteString(s[:dollar])
		s = s[dollar+1:]
		switch s[0] {
		case '$':
			out.WriteByte('$')
			s = s[1:]
		case '(':
			end := strings.IndexByte(s, ')')
			if end < 0 {
				out.WriteString("$(")
				s = s[1:]
				continue
			}
			name := s[1:end]
			if value, ok := vars[name]; ok {
				out.WriteString(value)
			} else {
				out.WriteString("$(" + name + ")")
			}
			s = s[end+1:]
		default:
			out.WriteByte('$')
		}
	}
	return out.String()
}
