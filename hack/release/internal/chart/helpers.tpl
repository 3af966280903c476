{{- /* The name of an image, by its digest if there is one. The chart's own digest is of the chart's own tag:
with another tag alone, that tag is meant. */ -}}
{{- define "efs-stunnel.image" -}}
{{- $image := .image -}}
{{- $stale := and (eq (toString $image.digest) .digest) (ne (toString $image.tag) .tag) $image.tag -}}
{{ $image.repository }}{{ if and $image.digest (not $stale) }}@{{ $image.digest }}{{ else }}:{{ required "an image has neither tag nor digest" $image.tag }}{{ end }}
{{- end -}}
