{{/* What all pods have: nobody is root, nothing is written but where it says so, no token of the cluster. */}}

{{/* Numbers of the users in the images. */}}
{{- define "federator.user" -}}10001{{- end -}}
{{- define "federator.mosquittoUser" -}}1883{{- end -}}

{{- define "federator.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ include "federator.user" . }}
runAsGroup: {{ include "federator.user" . }}
fsGroup: {{ include "federator.user" . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "federator.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The first keys of each pod's spec. */}}
{{- define "federator.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "federator.podSecurity" . | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Where pods may run, of (dict "root" $ "own" VALUES "component" NAME): own values win. */}}
{{- define "federator.placement" -}}
{{- with default .root.Values.nodeSelector .own.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with default .root.Values.tolerations .own.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with default .root.Values.affinity .own.affinity }}
affinity: {{ toJson . }}
{{- else }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "federator.selector" .root | nindent 14 }}
              app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- end -}}

{{/* A volume of keys, of (dict "root" $ "secret" SECRET "key" KEY "as" FILE). A list of what is revoked may come later. */}}
{{- define "federator.keysVolume" -}}
- name: keys
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ .secret }}
          items:
            - {key: {{ .key }}, path: {{ .as }}}
            - {key: federation.pub, path: federation.pub}
      - secret:
          name: {{ .secret }}
          optional: true
          items: [{key: revocations, path: revocations}]
{{- end -}}

{{/* Probes of one of our daemons: its own pages. What a neighbour does takes no readiness away. */}}
{{- define "federator.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 36
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 6
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{/* What the agent reads and writes; the container that makes the ACL reads the same. */}}
{{- define "federator.agentMounts" -}}
- {name: data, mountPath: /var/lib/federator, subPath: agent}
{{ include "federator.mounts" . }}
{{- end -}}

{{/* What each of our daemons reads, and a folder for what is not kept. */}}
{{- define "federator.mounts" -}}
- {name: config, mountPath: /etc/federator, readOnly: true}
- {name: logins, mountPath: /run/federator/logins, readOnly: true}
{{- if ne .Values.security "open" }}
- {name: keys, mountPath: /run/federator/keys, readOnly: true}
{{- end }}
{{- if .Values.tls.secret }}
- {name: tls, mountPath: /run/federator/tls, readOnly: true}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{/* Volumes of a gateway, the collector or the console, of
     (dict "root" $ "config" CONFIGMAP "login" USER "key" KEY): both are keys of their Secrets. */}}
{{- define "federator.readerVolumes" -}}
- name: config
  configMap: {name: {{ .config }}}
- name: logins
  secret:
    secretName: {{ include "federator.loginsSecret" .root }}
    defaultMode: 0440
    items: [{key: {{ .login }}, path: password}]
{{- if ne .root.Values.security "open" }}
{{ include "federator.keysVolume" (dict "secret" (include "federator.keysSecret" .root) "key" .key "as" "ours.key") }}
{{- end }}
{{- with .root.Values.tls.secret }}
- name: tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- end -}}

{{/* The head of one of our containers, of (dict "root" $ "args" LIST "own" VALUES). */}}
{{- define "federator.daemon" -}}
image: {{ include "federator.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args: {{ toJson .args }}
securityContext:
  {{- include "federator.containerSecurity" .root | nindent 2 }}
resources: {{ toJson .own.resources }}
{{ include "federator.probes" .root }}
{{- end -}}
