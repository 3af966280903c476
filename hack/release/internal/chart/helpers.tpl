{{- /* The name of an image, by its digest if there is one. */ -}}
{{- define "efs-stunnel.image" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ required "an image has neither tag nor digest" .tag }}{{ end }}
{{- end -}}
