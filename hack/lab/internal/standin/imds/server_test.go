package imds

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory/inventorytest"
)

func start(t *testing.T) (url string) {
	t.Helper()
	store := inventorytest.New(t, "127.0",
		inventory.Node{Name: "node-1", Address: "127.0.1.11", PodCIDR: "127.1.1.0/24", MAC: "52:54:00:5a:00:01", Zone: "us-east-1a"},
		inventory.Node{Name: "node-2", Address: "127.0.2.12", PodCIDR: "127.1.2.0/24", MAC: "52:54:00:5a:00:02", Zone: "us-east-1b"},
		inventory.Node{Name: "node-3", Address: "127.0.0.1", MAC: "52:54:00:5a:00:03", Zone: "us-east-1b"}, // clients that choose no address
	)
	server := httptest.NewServer(New(Options{
		Inventory: store, Region: "us-east-1", AccountID: "123456789012", VPCID: "vpc-1",
		AccessKeyID: "AKIALAB", SecretAccessKey: "secret", Now: time.Now,
		Log: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// from makes a client whose packets come from one of the loopback addresses.
func from(address string) *http.Client {
	dialer := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 0))}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
}

func client(url, address string) *imds.Client {
	return imds.New(imds.Options{Endpoint: url, HTTPClient: from(address), ClientEnableState: imds.ClientEnabled, DisableDefaultTimeout: true})
}

func read(t *testing.T, c *imds.Client, path string) string {
	t.Helper()
	answer, err := c.GetMetadata(t.Context(), &imds.GetMetadataInput{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Content.Close()
	text, err := io.ReadAll(answer.Content)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEachNodeReadsItsOwnMetadata(t *testing.T) {
	url := start(t)
	tests := map[string]map[string]string{
		"127.0.1.11": {
			"placement/region": "us-east-1", "placement/availability-zone": "us-east-1a", "placement/availability-zone-id": "use1-az1",
			"mac": "52:54:00:5a:00:01", "local-ipv4": "127.0.1.11", "local-hostname": "ip-127-0-1-11.ec2.internal",
			"network/interfaces/macs/":                                         "52:54:00:5a:00:01/",
			"network/interfaces/macs/52:54:00:5a:00:01/subnet-id":              "subnet-0a",
			"network/interfaces/macs/52:54:00:5a:00:01/vpc-id":                 "vpc-1",
			"network/interfaces/macs/52:54:00:5a:00:01/subnet-ipv4-cidr-block": "127.0.1.0/24",
			"iam/security-credentials/":                                        Role,
		},
		"127.1.2.99": { // a pod of the second node
			"placement/availability-zone": "us-east-1b", "mac": "52:54:00:5a:00:02", "local-ipv4": "127.0.2.12",
			"network/interfaces/macs/52:54:00:5a:00:02/subnet-id": "subnet-0b",
		},
	}
	for address, want := range tests {
		t.Run(address, func(t *testing.T) {
			got := map[string]string{}
			for path := range want {
				got[path] = read(t, client(url, address), path)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSDKReadsRegionAndIdentity(t *testing.T) {
	c := client(start(t), "127.0.2.12")
	region, err := c.GetRegion(t.Context(), nil)
	if err != nil || region.Region != "us-east-1" {
		t.Errorf("region %v, %v", region, err)
	}
	doc, err := c.GetInstanceIdentityDocument(t.Context(), nil)
	if err != nil || doc.AvailabilityZone != "us-east-1b" || doc.PrivateIP != "127.0.2.12" || !strings.HasPrefix(doc.InstanceID, "i-") {
		t.Errorf("identity %+v, %v", doc, err)
	}
}

func TestDefaultChainReadsTheRolesCredentials(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CA_BUNDLE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		t.Setenv(name, "")
	}
	missing := filepath.Join(t.TempDir(), "none")
	t.Setenv("AWS_CONFIG_FILE", missing)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", missing)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", start(t))
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithEC2IMDSRegion())
	if err != nil {
		t.Fatal(err)
	}
	key, err := cfg.Credentials.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if key.AccessKeyID != "AKIALAB" || key.SecretAccessKey != "secret" || !key.CanExpire || cfg.Region != "us-east-1" {
		t.Errorf("got %+v in region %q", key, cfg.Region)
	}
}

func status(t *testing.T, address, method, url string, header map[string]string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range header {
		r.Header.Set(key, value)
	}
	answer, err := from(address).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

func TestOnlyVersionTwoIsServed(t *testing.T) {
	url := start(t)
	ttl := func(value string) map[string]string { return map[string]string{ttlHeader: value} }
	tests := map[string]struct {
		method, path string
		header       map[string]string
		want         int
	}{
		"read without token":             {http.MethodGet, "/latest/meta-data/mac", nil, 401},
		"read with a guess":              {http.MethodGet, "/latest/meta-data/mac", map[string]string{tokenHeader: "guess"}, 401},
		"token without ttl":              {http.MethodPut, "/latest/api/token", nil, 400},
		"token with too long a lifetime": {http.MethodPut, "/latest/api/token", ttl("21601"), 400},
		"token without lifetime":         {http.MethodPut, "/latest/api/token", ttl("0"), 400},
		"token through a proxy":          {http.MethodPut, "/latest/api/token", map[string]string{ttlHeader: "60", "X-Forwarded-For": "1.2.3.4"}, 403},
		"token by GET":                   {http.MethodGet, "/latest/api/token", ttl("60"), 405},
		"token":                          {http.MethodPut, "/latest/api/token", ttl("60"), 200},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := status(t, "127.0.1.11", tt.method, url+tt.path, tt.header); got != tt.want {
				t.Errorf("status %d, want %d", got, tt.want)
			}
		})
	}
}

func TestTokenIsValidForOneClientAndALimitedTime(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := New(Options{Now: func() time.Time { return now }})
	mine, other := netip.MustParseAddr("127.0.1.11"), netip.MustParseAddr("127.0.2.12")
	text := s.issue(mine, time.Minute)
	if !s.allows(text, mine) || s.allows(text, other) {
		t.Error("want it to work for its own client only")
	}
	now = now.Add(time.Minute)
	if s.allows(text, mine) {
		t.Error("want it to expire")
	}
}

func TestAddressOfNoNodeReadsNothing(t *testing.T) {
	_, err := client(start(t), "127.0.3.1").GetMetadata(t.Context(), &imds.GetMetadataInput{Path: "mac"})
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) || response.HTTPStatusCode() != http.StatusNotFound {
		t.Errorf("got %v, want 404", err)
	}
}
