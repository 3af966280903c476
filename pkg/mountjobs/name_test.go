package mountjobs_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

func TestParseName(t *testing.T) {
	tests := map[string]struct {
		name string
		want mountjobs.Name // zero if none of ours
	}{
		"a mount Job":                   {"efs-mount-fs-34a3p3-00001", mountjobs.Name{Kind: mountjobs.Mount, FileSystemID: fileSystem, Number: 1}},
		"a sweep Job":                   {"efs-sweep-fs-34a3p3-00042", mountjobs.Name{Kind: mountjobs.Sweep, FileSystemID: fileSystem, Number: 42}},
		"a survey Job":                  {"efs-usage-fs-34a3p3-00042", mountjobs.Name{Kind: mountjobs.Survey, FileSystemID: fileSystem, Number: 42}},
		"a clone Job":                   {"efs-clone-fs-34a3p3-00042", mountjobs.Name{Kind: mountjobs.Clone, FileSystemID: fileSystem, Number: 42}},
		"beyond five digits":            {"efs-mount-fs-34a3p3-100000", mountjobs.Name{Kind: mountjobs.Mount, FileSystemID: fileSystem, Number: 100000}},
		"a pod's name":                  {"efs-mount-fs-34a3p3-00001-abcde", mountjobs.Name{}},
		"too few digits":                {"efs-mount-fs-34a3p3-0001", mountjobs.Name{}},
		"too many zeros":                {"efs-mount-fs-34a3p3-000001", mountjobs.Name{}},
		"number 0":                      {"efs-mount-fs-34a3p3-00000", mountjobs.Name{}},
		"a sign":                        {"efs-mount-fs-34a3p3-+0001", mountjobs.Name{}},
		"a negative number":             {"efs-mount-fs-34a3p3--0001", mountjobs.Name{}},
		"a number for a label too long": {"efs-mount-fs-34a3p3-1000000000", mountjobs.Name{}},
		"no number":                     {"efs-mount-fs-34a3p3", mountjobs.Name{}},
		"no file system":                {"efs-mount-00001", mountjobs.Name{}},
		"a pinned server":               {"efs-mount-nas-in-town-00001", mountjobs.Name{Kind: mountjobs.Mount, FileSystemID: "nas-in-town", Number: 1}},
		"another program's":             {"backup-00001", mountjobs.Name{}},
		"nothing":                       {"", mountjobs.Name{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := mountjobs.ParseName(tt.name)
			if ok != (tt.want != mountjobs.Name{}) || ok && got != tt.want {
				t.Errorf("ParseName(%q) = %+v, %t", tt.name, got, ok)
			}
		})
	}
}

func TestNextNumber(t *testing.T) {
	tests := map[string]struct {
		names []string
		want  int
	}{
		"starts at 1":               {nil, 1},
		"follows the newest":        {[]string{"efs-mount-fs-34a3p3-00002", "efs-mount-fs-34a3p3-00009", "efs-mount-fs-34a3p3-00001"}, 10},
		"goes beyond five digits":   {[]string{"efs-mount-fs-34a3p3-99999"}, 100000},
		"and on":                    {[]string{"efs-mount-fs-34a3p3-100000", "efs-mount-fs-34a3p3-99999"}, 100001},
		"leaves out what is others": {[]string{"efs-mount-fs-other-00007", "efs-sweep-fs-34a3p3-00008", "efs-mount-fs-34a3p3-9", "x"}, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var jobs []*batchv1.Job
			for _, name := range tt.names {
				jobs = append(jobs, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			if got := mountjobs.NextNumber(mountjobs.Mount, fileSystem, jobs); got != tt.want {
				t.Errorf("NextNumber = %d, want %d", got, tt.want)
			}
		})
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("efs-mount-fs-34a3p3-00001")
	f.Add("efs-sweep-fs-34a3p3-100000")
	f.Fuzz(func(t *testing.T, text string) {
		name, ok := mountjobs.ParseName(text)
		if !ok {
			return
		}
		if name.String() != text || len(text) > 63 || name.Number < 1 {
			t.Errorf("ParseName(%q) = %+v, which is %q", text, name, name)
		}
	})
}
