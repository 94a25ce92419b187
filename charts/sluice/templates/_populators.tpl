{{/* The Populators of the sources that Sluice ships, as the data of a ConfigMap. */}}
{{- define "sluice.populators" -}}
{{- if ne .Values.sources.populators "Never" }}
{{- if .Values.sources.http.enabled }}
http.yaml: {{ include "sluice.populator.http" . | toYaml | nindent 2 }}
{{- end }}
{{- if .Values.sources.inline.enabled }}
inline.yaml: {{ include "sluice.populator.inline" . | toYaml | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the Populators have in common: metadata up to the worker's image. */}}
{{- define "sluice.populator.head" -}}
apiVersion: sluice.dev/v1alpha1
kind: Populator
metadata:
  name: {{ .name }}
  labels:
    app.kubernetes.io/name: sluice
    app.kubernetes.io/instance: {{ .root.Release.Name }}
    app.kubernetes.io/managed-by: sluice-manager
spec:
  sourceKind:
    group: sluice.dev
    kind: {{ .kind }}
{{- end }}

{{- define "sluice.populator.image" -}}
image: {{ include "sluice.workerImage" . | quote }}
{{- with .Values.sources.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- with .Values.sources.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
resources: {{- toYaml .Values.sources.resources | nindent 2 }}
{{- end }}

{{- define "sluice.populator.http" -}}
{{ include "sluice.populator.head" (dict "root" . "name" "http" "kind" "HTTPSource") }}
  validations:
  - rule: "!has(source.spec.extract) || claim.spec.?volumeMode.orValue('Filesystem') != 'Block'"
    message: An archive cannot be extracted onto a volume of mode Block
  worker:
    rootIfNeeded: true
    {{- include "sluice.populator.image" . | nindent 4 }}
    args: [http]
    env:
    - {name: SOURCE_URL, value: "${source.spec.url}"}
    - {name: SOURCE_DIGEST, value: "${source.spec.?digest.orValue('')}"}
    - {name: SOURCE_FILE_NAME, value: "${source.spec.?fileName.orValue('')}"}
    - {name: SOURCE_FILE_MODE, value: "${source.spec.?fileMode.orValue('')}"}
    - {name: SOURCE_EXTRACT, value: "${has(source.spec.extract)}"}
    - {name: SOURCE_FORMAT, value: "${source.spec.?extract.?format.orValue('')}"}
    - {name: SOURCE_SUB_PATH, value: "${source.spec.?extract.?subPath.orValue('')}"}
    - {name: SOURCE_STRIP_COMPONENTS, value: "${source.spec.?extract.?stripComponents.orValue(0)}"}
    - {name: SOURCE_SKIP_UNSUPPORTED, value: "${source.spec.?extract.?unsupported.orValue('Refuse') == 'Skip'}"}
    - {name: SOURCE_MAX_REDIRECTS, value: "${source.spec.?maxRedirects.orValue(0)}"}
    - {name: SOURCE_ON_MISSING, value: "${source.spec.?onMissing.orValue('')}"}
    - {name: SOURCE_CREDENTIALS, value: "${has(source.spec.secretRef) ? '/sources/credentials' : ''}"}
    - name: SOURCE_CA_FILE
      value: "/sluice/files/ca.crt${has(source.spec.caConfigMapRef) ? ',/sources/ca/' + source.spec.caConfigMapRef.?key.orValue('ca.crt') : ''}"
    {{- with .Values.sources.http }}
    - {name: SOURCE_ALLOW_ADDRESS, value: {{ join "," .allowAddresses | quote }}}
    - {name: SOURCE_DENY_ADDRESS, value: {{ join "," .denyAddresses | quote }}}
    - {name: SOURCE_PROXY, value: {{ .proxy | quote }}}
    - {name: SOURCE_NO_PROXY, value: {{ .noProxy | quote }}}
    {{- end }}
    files:
    - name: ca.crt
      content: "${source.spec.?caBundle.orValue('')}"
    sourceVolumes:
    - name: credentials
      mountPath: /sources/credentials
      secret: source.spec.?secretRef.?name
    - name: ca
      mountPath: /sources/ca
      configMap: source.spec.?caConfigMapRef.?name
{{- end }}

{{- define "sluice.populator.inline" -}}
{{ include "sluice.populator.head" (dict "root" . "name" "inline" "kind" "InlineSource") }}
  worker:
    rootIfNeeded: true
    {{- include "sluice.populator.image" . | nindent 4 }}
    args: [inline]
    env:
    - {name: SOURCE_MANIFEST, value: /sluice/files/manifest}
    - {name: SOURCE_ON_MISSING, value: "${source.spec.?onMissing.orValue('')}"}
    {{- range $object, $flag := dict "configMap" "CONFIG_MAP" "secret" "SECRET" }}
    - {name: SOURCE_{{ $flag }}, value: "${has(source.spec.{{ $object }}) ? '/sources/{{ $object | lower }}' : ''}"}
    {{- end }}
    files:
    # One line for each file: docs/worker.md says what the words are.
    - name: manifest
      content: |
        ${source.spec.?files.orValue([]).map(f, 'file ' + base64.encode(bytes(f.path)) + ' ' + f.?mode.orValue('-') + ' ' + (has(f.binaryContent) ? f.binaryContent : base64.encode(bytes(f.?content.orValue(''))))).join('\n')}
        {{- range $object := list "configMap" "secret" }}
        {{- $spec := printf "source.spec.?%s" $object }}
        ${has(source.spec.{{ $object }}) ? 'tree {{ $object }} ' + base64.encode(bytes({{ $spec }}.?path.orValue(''))) + ' ' + {{ $spec }}.?mode.orValue('-') : ''}
        ${ {{- $spec }}.?items.orValue([]).map(i, 'key {{ $object }} ' + base64.encode(bytes(i.key)) + ' ' + base64.encode(bytes(i.?path.orValue(''))) + ' ' + i.?mode.orValue('-')).join('\n')}
        {{- end }}
    sourceVolumes:
    # Where nothing is an answer, the worker starts without the object and says so.
    {{- range $object := list "configMap" "secret" }}
    - name: {{ $object | lower }}
      mountPath: /sources/{{ $object | lower }}
      {{ $object }}: source.spec.?{{ $object }}.?name
      optionalWhen: source.spec.?onMissing.orValue('Fail') == 'Continue'
    {{- end }}
{{- end }}
