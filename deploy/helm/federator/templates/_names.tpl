{{/* Names, labels and addresses that several manifests share. */}}

{{- define "federator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}{{ .Release.Name }}{{- else -}}{{ .Release.Name }}-{{ $name }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* What selects all pods of this release. */}}
{{- define "federator.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "federator.labels" -}}
{{ include "federator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: federator
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "federator.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{- define "federator.keysSecret" -}}
{{ default (printf "%s-keys" (include "federator.fullname" .)) .Values.keys.secret }}
{{- end -}}

{{- define "federator.loginsSecret" -}}
{{ default (printf "%s-logins" (include "federator.fullname" .)) .Values.logins.secret }}
{{- end -}}

{{/* The domain below which each broker's pod has a name that stays. */}}
{{- define "federator.domain" -}}
{{ include "federator.fullname" . }}-brokers.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* The host of a broker, of (dict "root" $ "name" NAME). */}}
{{- define "federator.host" -}}
{{ include "federator.fullname" .root }}-{{ .name }}-0.{{ include "federator.domain" .root }}
{{- end -}}

{{- define "federator.port" -}}{{ if .Values.tls.secret }}8883{{ else }}1883{{ end }}{{- end -}}

{{/* The address of a broker, of (dict "root" $ "name" NAME). */}}
{{- define "federator.url" -}}
{{ if .root.Values.tls.secret }}mqtts{{ else }}mqtt{{ end }}://{{ include "federator.host" . }}:{{ include "federator.port" .root }}
{{- end -}}

{{/* Users that programs have at brokers. */}}
{{- define "federator.programs" -}}
{{- $users := list "peer" -}}
{{- if .Values.gateway.enabled }}{{ $users = append $users "gateway" }}{{ end -}}
{{- if .Values.collector.enabled }}{{ $users = append $users "collector" }}{{ end -}}
{{- if .Values.console.enabled }}{{ $users = append $users "console" }}{{ end -}}
{{ toJson $users }}
{{- end -}}
