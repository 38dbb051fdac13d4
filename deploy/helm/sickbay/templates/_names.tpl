{{/* Names, labels and settings that several files need. */}}

{{- define "sickbay.labels" -}}
app.kubernetes.io/name: sickbay, app.kubernetes.io/part-of: sickbay
{{- end }}

{{- define "sickbay.prefix" -}}
{{ dig "kubernetes" "prefix" "gpu-healthcheck.aws-samples.io" .Values.settings }}
{{- end }}

{{- define "sickbay.mode" -}}
{{ dig "agent" "mode" "managed" .Values.settings }}
{{- end }}

{{/* "true" where a pod that is no gang's may be deleted: by force at a drain's end, or off a machine without power. */}}
{{- define "sickbay.deletes" -}}
{{ or (dig "kubernetes" "force" false .Values.settings) (dig "kubernetes" "out_of_service" false .Values.settings) }}
{{- end }}

{{/* (root, image): as it was named; one without tag and digest is of the chart's own version. */}}
{{- define "sickbay.image" -}}
{{- $image := index . 1 }}
{{- $last := $image | splitList "/" | last }}
{{- if or (contains ":" $last) (contains "@" $last) }}{{ $image }}{{ else }}{{ $image }}:{{ (index . 0).Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "sickbay.port" -}}
{{- $port := . | splitList ":" | last }}
{{- if or (not (regexMatch "^\\S*:[0-9]{1,5}$" .)) (lt (int $port) 1) (gt (int $port) 65535) }}
{{- fail (printf "%q will not do: write an address and a port such as \"0.0.0.0:9464\"" .) }}
{{- end }}
{{- $port }}
{{- end }}

{{/* The settings in force: what this chart needs, then what you say. As JSON. */}}
{{- define "sickbay.settings" -}}
{{- $given := .Values.settings }}
{{- range list "namespace" "image" "job_account" }}
{{- if hasKey (dig "kubernetes" dict $given) . }}
{{- fail (printf "settings.kubernetes.%s is set by the chart: say it by %s" . (get (dict "namespace" "--namespace" "image" "agent.image" "job_account" "name") .)) }}
{{- end }}
{{- end }}
{{- if and (not .Values.controller.enabled) (ne (include "sickbay.mode" .) "standalone") }}
{{- fail "controller.enabled is false, so nobody would act on what agents say: set settings.agent.mode to standalone" }}
{{- end }}
{{- if dig "evidence" "claim" "" $given }}
{{- fail "settings.evidence.claim is set by the chart: say it by evidence.claim" }}
{{- end }}
{{- if and (eq (dig "evidence" "store" "" $given) "s3") (not (dig "evidence" "bucket" "" $given)) }}
{{- fail "settings.evidence.bucket is not set, though settings.evidence.store is s3: name the bucket that archives go to" }}
{{- end }}
{{- $agent := dict "publishers" (list "kubernetes") "host_root" "/host" "state_dir" "/var/lib/sickbay" "listen" (ternary "0.0.0.0:9464" "127.0.0.1:9464" .Values.monitoring.enabled) }}
{{- $kube := dict "namespace" .Release.Namespace "image" (include "sickbay.image" (list . .Values.agent.image)) "job_account" (printf "%s-node-job" .Values.name) }}
{{- $ours := dict "platform" "kubernetes" "store" "kubernetes" "data_dir" "/var/lib/sickbay" "agent" $agent "kubernetes" $kube "controller" (dict "listen" "0.0.0.0:9465" "probe_listen" "0.0.0.0:9466") "evidence" (dict "folder" "/var/lib/sickbay/evidence" "claim" .Values.evidence.claim) }}
{{- mustMergeOverwrite $ours (deepCopy $given) | mustToJson }}
{{- end }}

{{/* A mark of the settings that an agent takes at its start only (AT_START of agent/reload.py): new ones start it anew. */}}
{{- define "sickbay.atStart" -}}
{{- $settings := include "sickbay.settings" . | mustFromJson }}
{{- $agent := pick $settings.agent "node_name" "host_root" "state_dir" "kmsg" "listen" "publishers" "ingest_url" "token_file" "ca_file" "spool_mb" }}
{{- list $agent $settings.kubernetes | mustToJson | sha256sum | trunc 16 | quote }}
{{- end }}

{{/* A key as TOML: bare where it may be. */}}
{{- define "sickbay.key" -}}
{{ if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ mustToJson . }}{{ end }}
{{- end }}

{{/* One value as TOML. JSON's strings, numbers, lists and booleans are TOML; its tables are not. */}}
{{- define "sickbay.toml" -}}
{{- if kindIs "map" . -}}
{ {{- range $i, $key := keys . | sortAlpha }}{{ if $i }},{{ end }} {{ include "sickbay.key" $key }} = {{ include "sickbay.toml" (get $ $key) }}{{ end }} }
{{- else if kindIs "slice" . -}}
[{{- range $i, $value := . }}{{ if $i }}, {{ end }}{{ include "sickbay.toml" $value }}{{ end }}]
{{- else -}}
{{ mustToJson . }}
{{- end }}
{{- end }}

{{/* The token, as the kubelet lays it out, bound to the pod and good for an hour. */}}
{{- define "sickbay.token" -}}
projected:
  defaultMode: 0444
  sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3600}
    - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
    - downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}
{{- end }}

{{- define "sickbay.locked" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "sickbay.nobody" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The pod of a command of ours that needs the API server only: (root, argv, labels). */}}
{{- define "sickbay.errand" -}}
{{- $root := .root }}
serviceAccountName: {{ $root.Values.name }}-sweeper
automountServiceAccountToken: false
enableServiceLinks: false
restartPolicy: Never
terminationGracePeriodSeconds: 60 # what it has closed is opened again
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: [{{ range $i, $name := . }}{{ if $i }}, {{ end }}{name: {{ $name }}}{{ end }}]
{{- end }}
securityContext: {{- include "sickbay.nobody" $root | nindent 2 }}
containers:
  - name: {{ .what }}
    image: {{ include "sickbay.image" (list $root $root.Values.controller.image) }}
    imagePullPolicy: {{ $root.Values.controller.imagePullPolicy }}
    command: [{{ join ", " .argv }}]
    env:
      - {name: SICKBAY_CONFIG, value: /etc/sickbay/sickbay.toml}
    securityContext: {{- include "sickbay.locked" $root | nindent 6 }}
    resources: {{- toYaml $root.Values.sweeper.resources | nindent 6 }}
    volumeMounts:
      - {name: config, mountPath: /etc/sickbay, readOnly: true}
      - {name: tmp, mountPath: /tmp}
      - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
volumes:
  - {name: config, configMap: {name: sickbay-config}}
  - {name: tmp, emptyDir: {sizeLimit: 64Mi}}
  - name: token
    {{- include "sickbay.token" $root | nindent 4 }}
{{- end }}
