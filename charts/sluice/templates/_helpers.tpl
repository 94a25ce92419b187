{{/* Labels of every object. */}}
{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels that select the manager's Pods; they must never change. */}}
{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: manager
{{- end }}

{{/* The manager's image: the digest decides where there is one. */}}
{{- define "sluice.image" -}}
{{- with .Values.image -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- with .digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end }}

{{/* The image of the workers of shipped sources. */}}
{{- define "sluice.workerImage" -}}
{{- with .Values.sources.image -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- with .digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end }}

{{/* The user that the manager is to the API server. */}}
{{- define "sluice.identity" -}}
system:serviceaccount:{{ .Release.Namespace }}:sluice-manager
{{- end }}

{{/* Namespaces that Sluice keeps out of, as a YAML list. */}}
{{- define "sluice.excludedNamespaces" -}}
{{- concat (list "kube-system") .Values.excludedNamespaces | uniq | toYaml -}}
{{- end }}

{{/* The same, as a CEL list. */}}
{{- define "sluice.excludedNamespacesCEL" -}}
{{- concat (list "kube-system") .Values.excludedNamespaces | uniq | toJson -}}
{{- end }}

{{/*
Whether a temporary that is created is one of a claim of another namespace, as a
CEL expression: nothing can own it across namespaces, so an annotation says whose
it is.
*/}}
{{- define "sluice.elsewhereCEL" -}}
size(object.metadata.?ownerReferences.orValue([])) == 0
      && object.metadata.?annotations.orValue({})[?'sluice.dev/claim'].orValue('').matches('^[a-z0-9-]+/[a-z0-9.-]+$')
      && !object.metadata.annotations['sluice.dev/claim'].startsWith(request.namespace + '/')
{{- end }}
