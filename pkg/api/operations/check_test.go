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
		"a gift passes":                        {func(o *Operation) { o.Adopt, o.GivenTo = true, "uid" }, ""},
		"a gift that adopts nothing":           {func(o *Operation) { o.GivenTo = "uid" }, "only an adoption"},
		"a gift to a claim with a newline":     {func(o *Operation) { o.Adopt, o.GivenTo = true, "a\nb" }, "claim that it is given to"},
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
		"a volume of all allowed characters":   {func(o *Operation) { o.Volume = "0az9-.x" }, ""},
		"the longest volume passes":            {func(o *Operation) { o.Volume = strings.Repeat("a", 245) }, ""},
		"a volume that starts with a dash":     {func(o *Operation) { o.Volume = "-pvc" }, "no name of a Kubernetes object"},
		"a volume that starts with a dot":      {func(o *Operation) { o.Volume = ".." }, "no name of a Kubernetes object"},
		"a volume in capitals":                 {func(o *Operation) { o.Volume = "pvc-A" }, "no name of a Kubernetes object"},
		"a character after z":                  {func(o *Operation) { o.Volume = "pvc-{" }, "no name of a Kubernetes object"},
		"a character after 9":                  {func(o *Operation) { o.Volume = "pvc-:" }, "no name of a Kubernetes object"},
		"a character that is not ASCII":        {func(o *Operation) { o.Volume = "pvc-ü" }, "no name of a Kubernetes object"},
		"no namespace is refused":              {func(o *Operation) { o.Namespace = "" }, `namespace "" is empty`},
		"no claim is refused":                  {func(o *Operation) { o.Claim = "" }, `claim "" is empty`},
		"no claim uid is refused":              {func(o *Operation) { o.ClaimUID = "" }, `claim uid "" is empty`},
		"a namespace uid with an escape":       {func(o *Operation) { o.NamespaceUID = "\x1b[2J" }, "control characters"},
		"the longest class passes":             {func(o *Operation) { o.Class = strings.Repeat("a", 255) }, ""},
		"a class that is not UTF-8":            {func(o *Operation) { o.Class = "efs\xff" }, "not valid UTF-8"},
		"the highest uid and gid pass":         {func(o *Operation) { o.UID, o.GID = MaxID, MaxID }, ""},
		"a uid above the highest":              {func(o *Operation) { o.UID = MaxID + 1 }, "uid 2147483648 and gid 0 must be"},
		"a gid above the highest":              {func(o *Operation) { o.GID = MaxID + 1 }, "uid 0 and gid 2147483648 must be"},
		"a negative gid is refused":            {func(o *Operation) { o.GID = -1 }, "must be from 0"},
		"a gid range of one passes":            {func(o *Operation) { o.AllocateGID, o.GIDMin, o.GIDMax = true, 1, 1 }, ""},
		"the widest gid range passes":          {func(o *Operation) { o.AllocateGID, o.GIDMin, o.GIDMax = true, 1, MaxID }, ""},
		"a gid range from below 1":             {func(o *Operation) { o.AllocateGID, o.GIDMin = true, -1 }, "from -1 to 2147483647"},
		"a gid range beyond the highest":       {func(o *Operation) { o.AllocateGID, o.GIDMax = true, MaxID+1 }, "from 2000 to 2147483648"},
		"a gid range that is not used":         {func(o *Operation) { o.GIDMin, o.GIDMax = 3000, 2999 }, ""},
		"a cleanup needs no directory":         {func(o *Operation) { o.Kind, o.Mode = Cleanup, "0980" }, ""},
		"a restore needs no directory":         {func(o *Operation) { o.Kind, o.RestoreFrom, o.UID = Restore, "uid", -1 }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := Operation{Kind: Setup, Owner: owner("c1", "ns", 1)}
			tt.edit(&o)
			err := o.Check()
			if err != nil && len(err.Error()) > 300 {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want …%s…", err, tt.want)
			}
		})
	}
}
