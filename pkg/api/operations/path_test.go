package operations

import (
	"path"
	"strings"
	"testing"
)

func TestCheckPath(t *testing.T) {
	tests := map[string]struct{ path, want string }{
		"an ordinary path passes":                {"/ns/data", ""},
		"one component passes":                   {"/data", ""},
		"spaces and umlauts pass":                {"/n s/däta", ""},
		"dots inside names pass":                 {"/.hidden/a..b/...", ""},
		"@ inside a name passes":                 {"/ns/a@b", ""},
		"/.efs-stunnel below a directory passes": {"/ns/.efs-stunnel", ""},
		"/.efs-stunnel with a suffix passes":     {"/.efs-stunnel-2/x", ""},
		"empty is refused":                       {"", "is empty"},
		"relative is refused":                    {"ns/data", "does not start with /"},
		"the root is refused":                    {"/", "whole file system"},
		"a double slash is refused":              {"/ns//data", "empty component"},
		"a slash at the end is refused":          {"/ns/", "empty component"},
		"two slashes are refused":                {"//", "empty component"},
		". is refused":                           {"/ns/./data", "has the component ."},
		".. is refused":                          {"/ns/../other", "has the component .."},
		".. at the end is refused":               {"/ns/..", "has the component .."},
		"a backslash is refused":                 {`/ns/a\b`, "backslash"},
		"NUL is refused":                         {"/ns/a\x00b", "control character"},
		"a newline is refused":                   {"/ns/a\nb", "control character"},
		"DEL is refused":                         {"/ns/a\x7fb", "control character"},
		"a C1 control is refused":                {"/ns/a\u0085b", "control character"},
		"broken UTF-8 is refused":                {"/ns/a\xffb", "UTF-8"},
		"@ first is refused":                     {"/ns/@pvc-1", "starts with @"},
		"@ first in a parent is refused":         {"/@ns/data", "starts with @"},
		"/.efs-stunnel is refused":               {"/.efs-stunnel", "no volume may be"},
		"a path below /.efs-stunnel is refused":  {"/.efs-stunnel/trash/x", "no volume may be"},
		"256 bytes in a component are refused":   {"/" + strings.Repeat("a", 256), "256 bytes"},
		"255 bytes pass":                         {"/" + strings.Repeat("a", 255), ""},
		"1025 bytes are refused":                 {strings.Repeat("/aaaa", 205), "1025 bytes"},
		"1024 bytes pass":                        {strings.Repeat("/aaa", 256), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := CheckPath(tt.path)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want …%s…", err, tt.want)
			}
		})
	}
}

func TestTruncateCutsBetweenCharacters(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc"},
		{"aü", 2, "a"},
		{"aü", 3, "aü"},
		{"€€", 5, "€"},
		{"€", 2, ""},
		{"abc", 0, ""},
		{"\x80\x80\x80", 2, ""}, // no character begins there
	} {
		if got := Truncate(tt.text, tt.n); got != tt.want {
			t.Errorf("%q in %d bytes is %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}

func TestShortenShowsThatATextWasLonger(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{{"abcd", 4, "abcd"}, {"abcde", 4, "a…"}, {"€€", 5, "…"}, {"üabc", 4, "…"}} {
		if got := Shorten(tt.text, tt.n); got != tt.want {
			t.Errorf("%q in %d bytes is %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}

// A path that passes has one spelling, has parents that pass, and is not below /.efs-stunnel.
func FuzzCheckPath(f *testing.F) {
	for _, seed := range []string{"/ns/data", "/", "/a/../b", "/.efs-stunnel/x", "//", "/a\x00", "/@a", `/a\b`, "/a/.", "x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if err := CheckPath(p); err != nil {
			if len(err.Error()) > 1500 {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
			return
		}
		if path.Clean(p) != p || !path.IsAbs(p) || p == "/" || len(p) > 1024 {
			t.Errorf("%q passed", p)
		}
		if strings.HasPrefix(p+"/", "/.efs-stunnel/") || strings.Contains(p, "/@") || strings.ContainsAny(p, "\\\x00\n") {
			t.Errorf("%q passed", p)
		}
		for above := path.Dir(p); above != "/"; above = path.Dir(above) {
			if CheckPath(above) != nil {
				t.Errorf("%q has the ancestor %q", p, above)
			}
		}
	})
}
