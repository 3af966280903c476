package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
	"gnuthought.com/efs-stunnel/pkg/plugin/reading"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Usage has what claims hold, the largest first.
type Usage struct {
	Claims []ClaimUsage `json:"claims"`
	// Unread are the rights that the user lacks.
	Unread []string `json:"unread,omitempty"`
}

// ClaimUsage has what the directory of one claim holds. Without a survey of it, only the request is known.
type ClaimUsage struct {
	Namespace      string     `json:"namespace"`
	Claim          string     `json:"claim"`
	FileSystem     string     `json:"fileSystem,omitempty"`
	Volume         string     `json:"volume,omitempty"`
	RequestedBytes int64      `json:"requestedBytes"`
	UsedBytes      *int64     `json:"usedBytes,omitempty"`
	Files          *int64     `json:"files,omitempty"`
	CountedAt      *time.Time `json:"countedAt,omitempty"`
	// Incomplete is why the numbers are too low.
	Incomplete  string `json:"incomplete,omitempty"`
	OverRequest bool   `json:"overRequest,omitempty"`
}

// NewUsage lists the claims of a namespace, or of all if that is "".
func NewUsage(s *Snapshot, namespace string) Usage {
	f := derive(s)
	usage := Usage{Claims: []ClaimUsage{}}
	for _, claim := range keep(s.Claims, f.isUsers) {
		if namespace == "" || claim.Namespace == namespace {
			usage.Claims = append(usage.Claims, f.usageOf(claim))
		}
	}
	slices.SortStableFunc(usage.Claims, func(a, b ClaimUsage) int {
		largest := cmp.Compare(valueOr(b.UsedBytes, -1), valueOr(a.UsedBytes, -1)) // what is not known comes last
		return cmp.Or(largest, strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Claim, b.Claim))
	})
	usage.Unread = reading.Texts(keep(s.Unread, func(u Unread) bool {
		return u.Resource == claimResource && (namespace == "" || u.Namespace == namespace)
	}))
	return usage
}

func (f *facts) usageOf(claim *corev1.PersistentVolumeClaim) ClaimUsage {
	c := ClaimUsage{
		Namespace: claim.Namespace, Claim: claim.Name, RequestedBytes: mountjobs.Requested(claim),
		FileSystem: f.volumes[claim.Spec.VolumeName].FileSystemID, Volume: claim.Spec.VolumeName,
	}
	if counted, ok := mountjobs.ParseUsage(claim.Annotations[wellknown.AnnotationUsage]); ok {
		c.UsedBytes, c.Files, c.CountedAt = &counted.Bytes, &counted.Files, &counted.At
		c.Incomplete, c.OverRequest = counted.Incomplete, counted.IsOver(claim)
	}
	return c
}

// Level is unknown if claims could not be read.
func (u Usage) Level() Level {
	if len(u.Unread) > 0 {
		return Unknown
	}
	return OK
}

// Note returns what is special about the numbers.
func (c ClaimUsage) Note() string {
	var notes []string
	if c.OverRequest {
		notes = append(notes, "over its request")
	}
	if c.Incomplete != "" {
		notes = append(notes, "at least: "+printing.Short(c.Incomplete))
	}
	return strings.Join(notes, "; ")
}

// Print implements printing.Report.
func (u Usage) Print(w *printing.Writer, now time.Time) {
	rows := [][]string{{"NAMESPACE", "CLAIM", "FILE SYSTEM", "REQUESTED", "USED", "FILES", "COUNTED", "NOTE"}}
	for _, c := range u.Claims {
		row := []string{c.Namespace, c.Claim, c.FileSystem, printing.Size(c.RequestedBytes), "-", "-", "never", c.Note()}
		if c.UsedBytes != nil && c.Files != nil && c.CountedAt != nil {
			row[4], row[5], row[6] = printing.Size(*c.UsedBytes), strconv.FormatInt(*c.Files, 10), age(now, *c.CountedAt)+" ago"
		}
		rows = append(rows, row)
	}
	w.Rows(rows)
	if len(u.Claims) == 0 {
		w.Line("No claims of efs-stunnel.")
	}
	for _, right := range u.Unread {
		w.Line("\nYou have no right to %s: claims are missing here.", right)
	}
}

const (
	// beginTime bounds the time that the manager may take to begin a survey: several others may run.
	beginTime = time.Minute
	// surveyStartTime bounds the time that the pod of a survey may take to start.
	surveyStartTime = 30 * time.Second
)

// FileSystemsOf returns those of the listed claims, or all if the user may not read volumes. The error names the rights
// without which none of them is found.
func FileSystemsOf(s *Snapshot, usage Usage) (ids []string, err error) {
	f, wanted := derive(s), map[string]bool{}
	for _, c := range usage.Claims {
		wanted[c.FileSystem] = true
	}
	for _, root := range keep(s.Claims, f.isRoot) {
		if id := strings.TrimPrefix(root.Name, wellknown.RootVolumePrefix); wanted[id] || s.lacks(volumeResource) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	rights := reading.Texts(keep(s.Unread, func(u Unread) bool {
		return u.Resource == volumeResource || u.Resource == claimResource && u.Namespace == s.Namespace
	}))
	if len(ids) == 0 && len(usage.Claims) > 0 && len(rights) > 0 {
		return nil, fmt.Errorf("no file system of the claims is found: you have no right to %s", strings.Join(rights, ", nor to "))
	}
	return ids, nil
}

// SurveyOf returns how far the survey of a file system is that was requested at a time, "" when it is finished. One
// that is stuck will not continue by itself soon. The state has no time in it: a caller prints it when it changes.
func SurveyOf(s *Snapshot, id string, requested time.Time) (state string, stuck bool) {
	f := derive(s)
	root := f.rootClaim(id)
	if root == nil {
		return "there is no root claim " + volumes.RootName(id) + " that you may read", true
	}
	if record := mountjobs.SurveyRecordOf(root.Annotations); !record.Ended.IsZero() && !record.Began.Before(requested) {
		return "", false
	}
	return f.stateOfSurvey(id, requested)
}

// stateOfSurvey returns how far the newest Job that may count is. Its condition says why it has counted nothing.
func (f *facts) stateOfSurvey(id string, requested time.Time) (state string, stuck bool) {
	j := first(f.jobs, func(j jobFacts) bool { // the newest first
		isNew := !j.job.CreationTimestamp.Time.Before(requested.Truncate(time.Second))
		return j.outcome.Name.Kind == mountjobs.Survey && j.outcome.Name.FileSystemID == id && (isNew || j.outcome.State == mountjobs.Running)
	})
	if j.job == nil && f.Now.Sub(requested) > beginTime {
		return fmt.Sprintf("the manager has not begun it: see kubectl efs-stunnel doctor %s; or four others run", id), true
	}
	if j.job == nil {
		return "waits for the manager", false
	}
	created := j.job.CreationTimestamp.Time
	failed := f.ofConditions("", keep(f.shown[id], func(c metav1.Condition) bool { return c.Type == status.Surveyed }))
	switch {
	case j.reason != "":
		return fmt.Sprintf("Job %s does not start: %s (see: kubectl -n %s describe job %s)", j.job.Name, j.message, f.Namespace, j.job.Name),
			f.Now.Sub(created) > surveyStartTime
	case j.outcome.State == mountjobs.Running:
		return fmt.Sprintf("Job %s runs", j.job.Name), false
	case len(failed) > 0 && !mountjobs.IsUnreleased(j.job):
		return failed[0].Message, true
	}
	ended := slices.MaxFunc([]time.Time{j.outcome.Ended, created}, time.Time.Compare)
	return fmt.Sprintf("Job %s has ended, and the manager has not recorded what it has counted", j.job.Name), f.Now.Sub(ended) > beginTime
}
