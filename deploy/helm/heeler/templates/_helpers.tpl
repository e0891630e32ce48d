{{- define "heeler.fullname" -}}
{{- if contains "heeler" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-heeler" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- /* Labels that select the pods of a part: (dict "root" $ "name" "detect") */ -}}
{{- define "heeler.selector" -}}
app.kubernetes.io/name: heeler
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "heeler.labels" -}}
{{ include "heeler.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- /* Numbers of values are floats; settings that count want whole ones. Changes a table in place. */ -}}
{{- define "heeler.whole" -}}
{{- range $key, $value := . }}
  {{- if kindIs "float64" $value }}
    {{- if eq $value (floor $value) }}{{ $_ := set $ $key (int64 $value) }}{{ end }}
  {{- else if kindIs "map" $value }}{{ include "heeler.whole" $value }}
  {{- else if kindIs "slice" $value }}
    {{- $items := list }}
    {{- range $value }}
      {{- if kindIs "map" . }}{{ include "heeler.whole" . }}{{ end }}
      {{- if kindIs "float64" . }}
        {{- if eq . (floor .) }}{{ $items = append $items (int64 .) }}{{ else }}{{ $items = append $items . }}{{ end }}
      {{- else }}{{ $items = append $items . }}{{ end }}
    {{- end }}
    {{- $_ := set $ $key $items }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "heeler.toml" -}}
{{- $settings := deepCopy . }}
{{- include "heeler.whole" $settings }}
{{- toToml $settings }}
{{- end }}

{{- /* Who a process is on the bus: (dict "root" $ "name" "detect") */ -}}
{{- define "heeler.secret" -}}
{{ .root.Values.nats.secret | replace "NAME" .name }}
{{- end }}

{{- define "heeler.busEnv" -}}
- name: HEELER_NATS_URL
  value: {{ join "," .Values.nats.urls | quote }}
- name: HEELER_CLUSTER
  value: {{ required "cluster: what is the cluster called?" .Values.cluster | quote }}
{{- if eq .Values.nats.auth "tls" }}
- {name: HEELER_NATS_CA, value: /etc/heeler/nats/ca.crt}
- {name: HEELER_NATS_CERT, value: /etc/heeler/nats/tls.crt}
- {name: HEELER_NATS_KEY, value: /etc/heeler/nats/tls.key}
{{- else if eq .Values.nats.auth "creds" }}
- {name: HEELER_NATS_CREDS, value: /etc/heeler/nats/nats.creds}
{{- end }}
{{- end }}

{{- define "heeler.image" -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "heeler.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "heeler.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Where a pod may run: (dict "own" .. "common" ..) */ -}}
{{- define "heeler.placement" -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with (get $.own $key | default (get $.common $key)) }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .common.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- /* What a processor offers beside its metrics, by its settings: port names and numbers as YAML */ -}}
{{- define "heeler.offers" -}}
{{- $settings := (index .root.Values.processors .name).settings }}
{{- if eq .name "console" }}
http: {{ (get $settings "console").listen | splitList ":" | last }}
{{- else if eq .name "otlp-in" }}
{{- with (get $settings "otlp_in") }}
{{- with .grpc }}
otlp-grpc: {{ splitList ":" . | last }}
{{- end }}
{{- with .http }}
otlp-http: {{ splitList ":" . | last }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "heeler.ports" -}}
{{- range $port, $number := fromYaml (include "heeler.offers" .) }}
- {name: {{ $port }}, containerPort: {{ $number }}}
{{- end }}
{{- end }}

{{- define "heeler.bus" -}}
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
- ports: [{port: {{ .Values.nats.port }}, protocol: TCP}]
{{- end }}

{{- define "heeler.egress" -}}
{{ include "heeler.bus" . }}
{{- with .Values.networkPolicy.egress }}
{{ toYaml . }}
{{- end }}
{{- end }}
