//go:build linux

package docs

import (
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
)

func TestReasonsAreThoseOfThePrograms(t *testing.T) {
	var want []string
	for _, reason := range supervise.Reasons() {
		want = append(want, string(reason))
	}
	for _, reason := range []string{
		tunnelspec.ProbeTimeout, tunnelspec.ProbeRefused, tunnelspec.ProbeUnreachable, tunnelspec.ProbeClosed,
		tunnelspec.ProbeCertificate, tunnelspec.ProbeHandshake, tunnelspec.ProbeDenied, tunnelspec.ProbeProtocol,
		tunnelspec.ProbeHijacked, tunnelspec.ProbeOther,
	} {
		want = append(want, "Probe"+reason)
	}
	p := readPage(t, "docs/reference/reasons.md")
	expectSame(t, "reasons of tunnel problems", want, firstCodes(p.section(t, "## Reasons of tunnel problems")))
	expectSame(t, "reasons of unusable targets", []string{
		string(routing.NoAddress), string(routing.BadPort), string(routing.NoHostName),
		string(routing.ClientCertificate), string(routing.BadValue), string(routing.Missing),
	}, firstCodes(p.section(t, "## Reasons of unusable targets")))
}
