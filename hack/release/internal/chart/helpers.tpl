{{- /* The name of an image, by its digest if there is one. The chart's own digest is of the chart's own tag:
with another tag alone, that tag is meant. */ -}}
{{- define "efs-stunnel.image" -}}
{{- $image := .image -}}
{{- $stale := and (eq (toString $image.digest) .digest) (ne (toString $image.tag) .tag) $image.tag -}}
{{ $image.repository }}{{ if and $image.digest (not $stale) }}@{{ $image.digest }}{{ else }}:{{ required "an image has neither tag nor digest" $image.tag }}{{ end }}
{{- end -}}

{{- /* Where all objects are. */ -}}
{{- define "efs-stunnel.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end -}}

{{- /* A version as a label. Flux appends + and the digest of a chart that is from a registry. */ -}}
{{- define "efs-stunnel.version" -}}
{{ regexReplaceAll "[^A-Za-z0-9]+$" (. | replace "+" "_" | trunc 63) "" }}
{{- end -}}

{{- /* The labels of an object: those of the values, the chart's, and its own, which win. The list has the root, the
object's own labels as JSON, and more labels of values. */ -}}
{{- define "efs-stunnel.labels" -}}
{{- $root := index . 0 -}}
{{- $chart := dict "helm.sh/chart" (include "efs-stunnel.version" (printf "%s-%s" $root.Chart.Name $root.Chart.Version)) "app.kubernetes.io/instance" $root.Release.Name "app.kubernetes.io/version" (include "efs-stunnel.version" $root.Chart.AppVersion) -}}
{{- $labels := mergeOverwrite (dict) ($root.Values.labels | default dict) -}}
{{- range (slice . 2) -}}{{- $labels = mergeOverwrite $labels (. | default dict) -}}{{- end -}}
{{- mergeOverwrite $labels $chart (fromJson (index . 1)) | toJson -}}
{{- end -}}

{{- /* Nothing, or an error: the manager would not start with such a range. */ -}}
{{- define "efs-stunnel.checkPorts" -}}
{{- $last := add .Values.ports.base .Values.ports.count -1 -}}
{{- if gt (int $last) 65535 -}}
{{- fail (printf "the last port of ports.base and ports.count is %d: want 65535 at most" (int $last)) -}}
{{- end -}}
{{- end -}}

{{- /* The flags of mount Jobs, from what a pod's fields would be. */ -}}
{{- define "efs-stunnel.workerTolerations" -}}
{{- $taints := list -}}
{{- range .Values.worker.tolerations -}}
{{- if hasKey . "tolerationSeconds" -}}
{{- fail (printf "a toleration of worker.tolerations, with key %q, has tolerationSeconds: mount Jobs stay on their node until they end" (toString .key)) -}}
{{- end -}}
{{- $taints = append $taints (printf "%s%s%s" (required "a toleration of worker.tolerations has no key" .key) (ternary (printf "=%v" .value) "" (not (empty .value))) (ternary (printf ":%s" .effect) "" (not (empty .effect)))) -}}
{{- end -}}
{{ join "," $taints }}
{{- end -}}
{{- define "efs-stunnel.workerNodeSelector" -}}
{{- $labels := list -}}
{{- range $key, $value := .Values.worker.nodeSelector -}}{{- $labels = append $labels (printf "%s=%v" $key $value) -}}{{- end -}}
{{ join "," $labels }}
{{- end -}}

{{- /* Whether claims are bound faster; an error on Kubernetes without the API of its policy. */ -}}
{{- define "efs-stunnel.fastBinding" -}}
{{- if .Values.components.fastBinding -}}
{{- if semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version -}}
{{- fail "components.fastBinding needs Kubernetes 1.36 or later, which has MutatingAdmissionPolicy v1" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}
