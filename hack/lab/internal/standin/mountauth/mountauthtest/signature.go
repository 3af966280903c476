package mountauthtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
)

// Signature returns a client's signature for a file system and the hash of its public key, in hex. It is
// independent of the implementation that is tested, so that a mistake in either of them is found.
func (i IAM) Signature(fileSystemID, keyHash string) string {
	day, second := i.At.UTC().Format("20060102"), i.At.UTC().Format("20060102T150405Z")
	scope := day + "/" + i.Region + "/elasticfilesystem/aws4_request"
	token := ""
	if i.SessionToken != "" {
		token = "&X-Amz-Security-Token=" + url.QueryEscape(i.SessionToken)
	}
	canonical := fmt.Sprintf("GET\n/\nAction=Connect&PublicKeyHash=%s&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s"+
		"&X-Amz-Date=%s&X-Amz-Expires=86400%s&X-Amz-SignedHeaders=host\nhost:%s\nhost\n%x",
		keyHash, url.QueryEscape(i.AccessKeyID+"/"+scope), second, token, fileSystemID, sha256.Sum256(nil))
	text := fmt.Sprintf("AWS4-HMAC-SHA256\n%s\n%s\n%x", second, scope, sha256.Sum256([]byte(canonical)))
	return hex.EncodeToString(mac(mac(mac(mac(mac([]byte("AWS4"+i.SecretAccessKey), day), i.Region), "elasticfilesystem"), "aws4_request"), text))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
