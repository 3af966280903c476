package operations

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		edit func(*Operation)
		want string // in the error; "" is none
	}{
		"a setup passes":                       {func(*Operation) {}, ""},
		"a release passes":                     {func(o *Operation) { o.Kind = Release }, ""},
		"a cleanup with a duration passes":     {func(o *Operation) { o.Kind, o.Keep = Cleanup, "72h" }, ""},
		"a restore passes":                     {func(o *Operation) { o.Kind, o.RestoreFrom = Restore, "uid" }, ""},
		"any name of a volume passes":          {func(o *Operation) { o.Volume = "efs-team.x" }, ""},
		"an unknown kind is refused":           {func(o *Operation) { o.Kind = "format" }, `no operation "format"`},
		"no volume is refused":                 {func(o *Operation) { o.Volume = "" }, "no name"},
		"a volume with a slash is refused":     {func(o *Operation) { o.Volume = "pvc/1" }, "no name of a Kubernetes object"},
		"a volume that starts with @":          {func(o *Operation) { o.Volume = "@pvc-1" }, "no name of a Kubernetes object"},
		"a long volume is refused":             {func(o *Operation) { o.Volume = strings.Repeat("a", 250) }, "more than 245 bytes"},
		"a volume that ends like a mark":       {func(o *Operation) { o.Volume = "pvc-1.leaving" }, ".leaving, which is reserved"},
		"a volume that ends like another mark": {func(o *Operation) { o.Volume = "pvc-1.retained" }, ".retained, which is reserved"},
		"no cluster is refused":                {func(o *Operation) { o.Cluster = "" }, `cluster "" is empty`},
		"a claim with a newline is refused":    {func(o *Operation) { o.Claim = "a\nb" }, "control characters"},
		"a long class is refused":              {func(o *Operation) { o.Class = strings.Repeat("a", 256) }, "more than 255 bytes"},
		"a mode that is not octal is refused":  {func(o *Operation) { o.Mode = "0980" }, "not octal"},
		"a mode with too many bits is refused": {func(o *Operation) { o.Mode = "17777" }, "from 0 to 7777"},
		"a negative uid is refused":            {func(o *Operation) { o.UID = -1 }, "must be from 0"},
		"a gid range without an end":           {func(o *Operation) { o.AllocateGID, o.GIDMin, o.GIDMax = true, 3000, 2999 }, "from 3000 to 2999"},
		"a negative duration is refused":       {func(o *Operation) { o.Kind, o.Keep = Cleanup, "-1h" }, "write a duration"},
		"a restore of no claim is refused":     {func(o *Operation) { o.Kind = Restore }, "uid of a claim to restore"},
		"a restore of a path is refused":       {func(o *Operation) { o.Kind, o.RestoreFrom = Restore, "../owners" }, "uid of a claim to restore"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := Operation{Kind: Setup, Owner: owner("c1", "ns", 1)}
			tt.edit(&o)
			err := o.Check()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want …%s…", err, tt.want)
			}
		})
	}
}

func TestUnixMode(t *testing.T) {
	for name, tt := range map[string]struct {
		directory Directory
		gid       int
		want      uint32
	}{
		"default":            {Directory{}, 0, 0o777},
		"with allocated gid": {Directory{}, 2000, 0o2771},
		"given":              {Directory{Mode: "0750"}, 2000, 0o750},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := tt.directory.UnixMode(tt.gid); err != nil || got != tt.want {
				t.Errorf("got %o, error %v, want %o", got, err, tt.want)
			}
		})
	}
}
