package wellknown_test

import (
	"net"
	"strconv"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

func TestDefaultPortRange(t *testing.T) {
	first, last := wellknown.DefaultBasePort, wellknown.DefaultBasePort+wellknown.DefaultPortCount-1
	if first < wellknown.MinPort || last > wellknown.MaxPort {
		t.Errorf("%d-%d leaves %d-%d", first, last, wellknown.MinPort, wellknown.MaxPort)
	}
	if first <= wellknown.MaxNodePort && last >= wellknown.MinNodePort {
		t.Errorf("%d-%d meets the NodePort range %d-%d",
			first, last, wellknown.MinNodePort, wellknown.MaxNodePort)
	}
	for use, port := range map[string]int{
		"an inline NFS volume": wellknown.NFSPort,
		"the agent's HTTP":     wellknown.AgentHTTPPort,
	} {
		if first <= port && port <= last {
			t.Errorf("%d-%d holds %d, the port of %s", first, last, port, use)
		}
	}
}

func TestAgentListensOnItsPort(t *testing.T) {
	_, port, err := net.SplitHostPort(wellknown.DefaultAgentHTTPAddress)
	if err != nil {
		t.Fatal(err)
	}
	if port != strconv.Itoa(wellknown.AgentHTTPPort) {
		t.Errorf("the agent listens on %s, but port %d is kept free", port, wellknown.AgentHTTPPort)
	}
}
