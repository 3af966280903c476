package usage

import (
	"github.com/prometheus/client_golang/prometheus"

	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// collector gives the numbers of all claims whose directories were counted. Their labels are those of
// kubelet's metrics of volumes, so that both can be joined. Only the leader has any.
type collector struct{ *Controller }

// Describe implements prometheus.Collector.
func (c collector) Describe(descriptions chan<- *prometheus.Desc) {
	used, files, requested := descriptionsOfVolumes()
	for _, description := range []*prometheus.Desc{used, files, requested} {
		descriptions <- description
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(metrics chan<- prometheus.Metric) {
	if c.queue.Running() {
		c.collectAll(metrics)
	}
}

func (c collector) collectAll(metrics chan<- prometheus.Metric) {
	used, files, requested := descriptionsOfVolumes()
	gauge := func(description *prometheus.Desc, value int64, namespace, claim string) {
		metrics <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, float64(value), namespace, claim)
	}
	for _, claim := range c.allClaims() {
		usage, ok := c.usageOf(claim)
		if !ok {
			continue
		}
		gauge(used, usage.Bytes, claim.Namespace, claim.Name)
		gauge(files, usage.Files, claim.Namespace, claim.Name)
		gauge(requested, volumes.Requested(claim), claim.Namespace, claim.Name)
	}
}

func descriptionsOfVolumes() (used, files, requested *prometheus.Desc) {
	labels := []string{"namespace", "persistentvolumeclaim"}
	used = prometheus.NewDesc("efs_stunnel_volume_used_bytes",
		"Bytes that the file server has allocated for a claim's directory, as the last survey counted them.", labels, nil)
	files = prometheus.NewDesc("efs_stunnel_volume_files",
		"Files and directories in a claim's directory, as the last survey counted them.", labels, nil)
	requested = prometheus.NewDesc("efs_stunnel_volume_requested_bytes",
		"Bytes that a claim whose directory was counted requests.", labels, nil)
	return used, files, requested
}
