{{/* What values.schema.json cannot say of values: each mistake ends the rendering with one line. */}}

{{- define "federator.check" -}}
{{- if gt (len (include "federator.fullname" .)) 40 -}}
{{- fail (printf "the name %q of the release is too long: choose a shorter one, or set fullnameOverride (40 characters at most)" (include "federator.fullname" .)) -}}
{{- end -}}
{{- $ids := dict -}}
{{- $names := dict -}}
{{- range .Values.brokers -}}
{{- $id := int64 .id | toString -}}
{{- if hasKey $ids $id -}}
{{- fail (printf "brokers: id %s is that of %s and of %s: give each broker its own" $id (get $ids $id) .name) -}}
{{- end -}}
{{- if hasKey $names .name -}}
{{- fail (printf "brokers: the name %s is there twice: give each broker its own" .name) -}}
{{- end -}}
{{- if or (has .name (list "brokers" "collector" "console" "gateway" "keys" "logins" "metrics")) (hasPrefix "gateway-" .name) -}}
{{- fail (printf "brokers: the name %s is taken by another object of this chart: choose another one" .name) -}}
{{- end -}}
{{- $_ := set $ids $id .name -}}
{{- $_ := set $names .name $id -}}
{{- end -}}
{{- range $broker := .Values.brokers -}}
{{- if and .neighbours (ne $.Values.links "named") -}}
{{- fail (printf "brokers: %s has neighbours, which need links: named (links is %s)" .name $.Values.links) -}}
{{- end -}}
{{- range .neighbours -}}
{{- if eq . $broker.name -}}
{{- fail (printf "brokers: %s is named as its own neighbour: name another one" .) -}}
{{- end -}}
{{- if not (or (contains "://" .) (hasKey $names .)) -}}
{{- fail (printf "brokers: the neighbour %s of %s is no broker of this list: correct the name, or write an address such as mqtt://HOST" . $broker.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
