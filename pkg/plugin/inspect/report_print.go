package inspect

import (
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
)

// writeResults leaves out most where a single cause has many claims wait.
func writeResults(w *printing.Writer, results []Result) {
	ofClaims := 0
	for _, r := range Entries(results) {
		if kind, _ := split(r.part()); kind == KindClaim {
			if ofClaims++; ofClaims > shownRows {
				continue
			}
		}
		w.Line("\n%s %s", strings.ToUpper(string(r.Level)), r.title())
		w.Line("  %s", r.Message)
		if len(r.Follows) > 0 {
			w.Line("  %s from it, or of the same cause: %s", printing.Count(len(r.Follows), "more problem"), status.FirstFew(r.Follows))
		}
		if r.Remedy != "" {
			w.Line("  do: %s", r.Remedy)
		}
	}
	if hidden := ofClaims - shownRows; hidden > 0 {
		w.Line("\n… and %d more claims or volumes: -o json has all", hidden)
	}
}

const (
	noProblem     = "no problem found"
	noProblemRead = "no problem found, but you may not read everything"
)

// Summary returns the level in words.
func (s Status) Summary() string {
	switch s.Level {
	case Problem:
		return s.problemsText()
	case Unknown:
		return noProblemRead
	case OK, Note:
	}
	return "healthy"
}

// problemsText counts problems of the installation apart from those of single objects, which tenants make.
func (s Status) problemsText() string {
	counts := map[string]int{}
	for _, r := range s.Problems {
		if r.layer < classes {
			r.check = "installation"
		}
		counts[r.check]++
	}
	texts := []string{"installation: " + printing.Count(counts["installation"], "problem")}
	for _, check := range []string{"claims", "classes", "volumes", "shared volumes"} {
		if counts[check] > 0 {
			texts = append(texts, check+": "+printing.Count(counts[check], "problem"))
		}
	}
	return strings.Join(texts, "; ")
}
