package imds

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

// Role is the name of the role whose credentials every node has.
const Role = "lab-node"

const credentialLife = 6 * time.Hour

// tree returns all metadata of a node, by path below /latest.
func (s *Server) tree(n inventory.Node) map[string]string {
	zone, _ := s.Inventory.Zone(n.Zone) // checked when the node was put
	t := map[string]string{
		"/meta-data/instance-id":                      identifier("i", n),
		"/meta-data/instance-type":                    "m5.large",
		"/meta-data/local-ipv4":                       n.Address,
		"/meta-data/local-hostname":                   s.hostname(n),
		"/meta-data/hostname":                         s.hostname(n),
		"/meta-data/mac":                              n.MAC,
		"/meta-data/placement/region":                 s.Region,
		"/meta-data/placement/availability-zone":      n.Zone,
		"/meta-data/placement/availability-zone-id":   zone.ID,
		"/meta-data/services/domain":                  "amazonaws.com",
		"/meta-data/services/partition":               "aws",
		"/meta-data/iam/info":                         s.roleInfo(),
		"/meta-data/iam/security-credentials/" + Role: s.credentials(),
		"/dynamic/instance-identity/document":         s.identity(n),
	}
	for name, value := range map[string]string{
		"device-number":          "0",
		"interface-id":           identifier("eni", n),
		"local-hostname":         s.hostname(n),
		"local-ipv4s":            n.Address,
		"mac":                    n.MAC,
		"owner-id":               s.AccountID,
		"subnet-id":              zone.SubnetID,
		"subnet-ipv4-cidr-block": zone.CIDR,
		"vpc-id":                 s.VPCID,
	} {
		t["/meta-data/network/interfaces/macs/"+n.MAC+"/"+name] = value
	}
	return t
}

func (s *Server) hostname(n inventory.Node) string {
	return "ip-" + strings.ReplaceAll(n.Address, ".", "-") + ".ec2.internal"
}

// identifier stays the same as long as the node has its name and address.
func identifier(prefix string, n inventory.Node) string {
	hash := sha256.Sum256([]byte(prefix + n.Name + n.Address))
	return prefix + "-" + hex.EncodeToString(hash[:])[:17]
}

func (s *Server) credentials() string {
	now := s.Now().UTC()
	return encode(map[string]string{
		"Code":            "Success",
		"Type":            "AWS-HMAC",
		"LastUpdated":     now.Format(time.RFC3339),
		"Expiration":      now.Add(credentialLife).Format(time.RFC3339),
		"AccessKeyId":     s.AccessKeyID,
		"SecretAccessKey": s.SecretAccessKey,
		"Token":           "session-token-of-the-lab",
	})
}

func (s *Server) roleInfo() string {
	return encode(map[string]string{
		"Code":               "Success",
		"LastUpdated":        s.Now().UTC().Format(time.RFC3339),
		"InstanceProfileArn": "arn:aws:iam::" + s.AccountID + ":instance-profile/" + Role,
		"InstanceProfileId":  "AIPALAB",
	})
}

func (s *Server) identity(n inventory.Node) string {
	return encode(map[string]string{
		"accountId":        s.AccountID,
		"architecture":     "x86_64",
		"availabilityZone": n.Zone,
		"imageId":          "ami-0123456789abcdef0",
		"instanceId":       identifier("i", n),
		"instanceType":     "m5.large",
		"pendingTime":      "2026-01-02T03:04:05Z",
		"privateIp":        n.Address,
		"region":           s.Region,
		"version":          "2017-09-30",
	})
}

// encode cannot fail, because all values are strings.
func encode(m map[string]string) string {
	text, _ := json.MarshalIndent(m, "", "  ")
	return string(text)
}
