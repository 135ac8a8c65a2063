{{/* Configurations of agents, gateways, collector and console: a dict each, printed as TOML. */}}

{{/* Whole numbers of values come as floats, which federator refuses: makes them integers, in place. */}}
{{- define "federator.integers" -}}
{{- range $key, $value := . -}}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) -}}
{{- $_ := set $ $key (int64 $value) -}}
{{- else if kindIs "map" $value -}}
{{- include "federator.integers" $value -}}
{{- else if kindIs "slice" $value -}}
{{- $list := list -}}
{{- range $value -}}
{{- $boxed := dict "it" . -}}
{{- include "federator.integers" $boxed -}}
{{- $list = append $list $boxed.it -}}
{{- end -}}
{{- $_ := set $ $key $list -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A configuration as TOML, of (list OURS THEIRS...): later ones win. */}}
{{- define "federator.toml" -}}
{{- $all := dict -}}
{{- range . -}}
{{- $all = mergeOverwrite $all (deepCopy (default dict .)) -}}
{{- end -}}
{{- include "federator.integers" $all -}}
{{- toToml $all -}}
{{- end -}}

{{/* Names of the brokers that a broker's agent connects to, as JSON, of (dict "root" $ "index" N). */}}
{{- define "federator.neighbours" -}}
{{- $names := list -}}
{{- $index := .index -}}
{{- range .root.Values.brokers }}{{ $names = append $names .name }}{{ end -}}
{{- $count := len $names -}}
{{- $found := list -}}
{{- $links := .root.Values.links -}}
{{- if eq $links "named" -}}
{{- $found = default list (index .root.Values.brokers $index).neighbours -}}
{{- else if eq $links "full" -}}
{{- $found = without $names (index $names $index) -}}
{{- else if has $links (list "ring" "line") -}}
{{- if gt $index 0 }}{{ $found = append $found (index $names (sub $index 1)) }}{{ end -}}
{{- if lt (add1 $index) $count }}{{ $found = append $found (index $names (add1 $index)) }}{{ end -}}
{{- if and (eq $links "ring") (gt $count 2) -}}
{{- if eq $index 0 }}{{ $found = append $found (last $names) }}{{ end -}}
{{- if eq (add1 $index) $count }}{{ $found = append $found (first $names) }}{{ end -}}
{{- end -}}
{{- end -}}
{{ toJson $found }}
{{- end -}}

{{/* The pages of a daemon: of (dict "root" $ "port" N). */}}
{{- define "federator.http" -}}
{{ dict "host" "0.0.0.0" "port" .port "allow_remote" true | toJson }}
{{- end -}}

{{/* The configuration of one agent, of (dict "root" $ "index" N). */}}
{{- define "federator.agent" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $broker := index $values.brokers .index -}}
{{- $ids := dict -}}
{{- range $values.brokers }}{{ $_ := set $ids .name (int64 .id) }}{{ end -}}
{{- $links := dict "username" "peer" "password_file" "/run/federator/logins/peer" -}}
{{- if $values.tls.secret -}}
{{- $_ := set $links "ca_file" "/run/federator/tls/ca.crt" -}}
{{- $_ := set $links "allow_plaintext" false -}}
{{- end -}}
{{- $ours := dict
  "federation" $values.federation
  "security" $values.security
  "state_dir" "/var/lib/federator/state"
  "broker" (dict
    "id" (int64 $broker.id)
    "name" $broker.name
    "url" "mqtt://127.0.0.1:1883"
    "advertise" (include "federator.url" (dict "root" $root "name" $broker.name))
    "priority" (int64 (default 0 $broker.priority))
    "username" "agent"
    "password_file" "/run/federator/logins/agent")
  "links" $links
  "metrics" (dict "enabled" $values.collector.enabled)
  "http" (include "federator.http" (dict "port" 9883) | fromJson)
  "log" (dict "format" "json") -}}
{{- if ne $values.security "open" -}}
{{- $_ := set $ours "keys" (dict
  "agent_file" "/run/federator/keys/agent.key"
  "federation_files" (list "/run/federator/keys/federation.pub")
  "revocations_file" "/run/federator/keys/revocations"
  "roles" "required") -}}
{{- end -}}
{{- if eq $values.links "auto" -}}
{{- $seeds := list -}}
{{- range $values.brokers }}{{ $seeds = append $seeds (include "federator.url" (dict "root" $root "name" .name)) }}{{ end -}}
{{- $_ := set $ours "topology" (dict
  "mode" "auto"
  "seeds" $seeds
  "hosts" (list (printf "*.%s" (include "federator.domain" $root)))) -}}
{{- else -}}
{{- $neighbours := list -}}
{{- range include "federator.neighbours" . | fromJsonArray -}}
{{- if contains "://" . -}}
{{- $neighbours = append $neighbours (dict "url" .) -}}
{{- else -}}
{{- $url := include "federator.url" (dict "root" $root "name" .) -}}
{{- $neighbours = append $neighbours (dict "id" (get $ids .) "url" $url) -}}
{{- end -}}
{{- end -}}
{{- if $neighbours }}{{ $_ := set $ours "neighbours" $neighbours }}{{ end -}}
{{- end -}}
{{- include "federator.toml" (list $ours $values.agent.config $broker.config) -}}
{{- end -}}

{{/* What all who read all brokers are told, of (dict "root" $ "user" USER "port" N "key" KEY): KEY_file of [keys]. */}}
{{- define "federator.reader" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $brokers := list -}}
{{- range $values.brokers -}}
{{- $brokers = append $brokers (dict "url" (include "federator.url" (dict "root" $root "name" .name))) -}}
{{- end -}}
{{- $login := dict
  "username" .user
  "password_file" "/run/federator/logins/password"
  "hosts" (list (printf "*.%s" (include "federator.domain" $root))) -}}
{{- if $values.tls.secret -}}
{{- $_ := set $login "ca_file" "/run/federator/tls/ca.crt" -}}
{{- $_ := set $login "allow_plaintext" false -}}
{{- end -}}
{{- $ours := dict
  "federation" $values.federation
  "brokers" $brokers
  "login" $login
  "http" (include "federator.http" . | fromJson)
  "log" (dict "format" "json") -}}
{{- if ne $values.security "open" -}}
{{- $_ := set $ours "keys" (dict
  (printf "%s_file" .key) "/run/federator/keys/ours.key"
  "federation_files" (list "/run/federator/keys/federation.pub")
  "revocations_file" "/run/federator/keys/revocations") -}}
{{- end -}}
{{ toJson $ours }}
{{- end -}}

{{- define "federator.collector" -}}
{{- $ours := include "federator.reader" (dict "root" . "user" "collector" "port" 9885 "key" "collector") | fromJson -}}
{{- $_ := set $ours "landing" "/landing" -}}
{{- include "federator.toml" (list $ours .Values.collector.config) -}}
{{- end -}}

{{- define "federator.console" -}}
{{- $ours := include "federator.reader" (dict "root" . "user" "console" "port" 9887 "key" "operator") | fromJson -}}
{{- $_ := set $ours.http "names" .Values.console.names -}}
{{- if .Values.console.operatorsSecret -}}
{{- $_ := set $ours "operators" (dict "file" "/run/federator/operators/operators") -}}
{{- end -}}
{{- include "federator.toml" (list $ours .Values.console.config) -}}
{{- end -}}

{{/* The configuration of one gateway, of (dict "root" $ "name" NAME). */}}
{{- define "federator.gateway" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $brokers := list -}}
{{- range $values.brokers -}}
{{- $one := dict
  "id" (int64 .id)
  "url" (include "federator.url" (dict "root" $root "name" .name))
  "username" "gateway"
  "password_file" "/run/federator/logins/password" -}}
{{- if $values.tls.secret }}{{ $_ := set $one "ca_file" "/run/federator/tls/ca.crt" }}{{ end -}}
{{- $brokers = append $brokers $one -}}
{{- end -}}
{{- $listener := dict "host" "0.0.0.0" "port" (include "federator.port" $root | int64) -}}
{{- if $values.tls.secret -}}
{{- $_ := set $listener "cert_file" "/run/federator/tls/tls.crt" -}}
{{- $_ := set $listener "key_file" "/run/federator/tls/tls.key" -}}
{{- end -}}
{{- $ours := dict
  "federation" $values.federation
  "name" .name
  "listeners" (list $listener)
  "brokers" $brokers
  "http" (include "federator.http" (dict "port" 9884) | fromJson)
  "log" (dict "format" "json") -}}
{{- if ne $values.security "open" -}}
{{- $_ := set $ours "keys" (dict
  "gateway_file" "/run/federator/keys/ours.key"
  "federation_files" (list "/run/federator/keys/federation.pub")
  "revocations_file" "/run/federator/keys/revocations"
  "roles" "required") -}}
{{- end -}}
{{- include "federator.toml" (list $ours $values.gateway.config) -}}
{{- end -}}

{{/* What every Mosquitto is told. */}}
{{- define "federator.mosquitto" -}}
{{- if .Values.tls.secret -}}
listener 1883 127.0.0.1
listener 8883
certfile /run/federator/tls/tls.crt
keyfile /run/federator/tls/tls.key
{{- else -}}
listener 1883
{{- end }}
allow_anonymous {{ .Values.clients.anonymous }}
password_file /mosquitto/private/passwords
acl_file /mosquitto/private/acl

# Sessions and queues outlive a restart. A broker that is killed loses what it took since it last saved.
persistence true
persistence_location /mosquitto/data/
autosave_interval 10
max_queued_messages 20000

# The one thing federator asks of a broker: the log on topics. Naming any of these replaces the
# defaults, which are therefore repeated.
log_dest stderr
log_dest topic
log_type error
log_type warning
log_type notice
log_type information
log_type subscribe
log_type unsubscribe
{{- with .Values.mosquitto.config }}

{{ . | trim }}
{{- end }}
{{- end -}}
