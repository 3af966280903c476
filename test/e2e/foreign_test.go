//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	foreign     = "elsewhere"       // the pinned target's id
	foreignName = "nfs.example.com" // what its server's certificate names
)

// foreignServer is a stunnel as a server, with a certificate that is not of EFS. The NFS server behind it
// is that of a file system that the EFS API shows as failed, so that no tunnel leads to it.
const foreignServer = `apiVersion: v1
kind: ConfigMap
metadata: {name: server}
data:
  stunnel.conf: |
    foreground = yes
    pid =
    [behind]
    client = yes
    accept = 127.0.0.1:3049
    connect = %s:2049
    [nfs]
    accept = %s:2049
    connect = 127.0.0.1:3049
    cert = /keys/tls.pem
---
apiVersion: v1
kind: Pod
metadata: {name: server}
spec:
  hostNetwork: true
  nodeSelector: {kubernetes.io/hostname: node-2}
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: registry.lab:5000/lab/toolbox:1
    command: [/usr/bin/stunnel4, /config/stunnel.conf]
    volumeMounts: [{name: config, mountPath: /config}, {name: keys, mountPath: /keys}]
  volumes: [{name: config, configMap: {name: server}}, {name: keys, secret: {secretName: keys}}]
---
`

const pinnedTable = `apiVersion: v1
kind: ConfigMap
metadata: {name: efs-stunnel-pinned}
data:
  efs-stunnel.yaml: |
    efs_stunnel_targets:
      %s:
        dns_name: %s
        mount_target_ip_by_zone: {us-east-1b: %s}
---
`

// foreignServerIsServed: a pinned target is any server of NFSv4 over TLS.
func foreignServerIsServed(l *lab) {
	ns := l.namespace("foreign")
	behind := strings.TrimSpace(l.lab("efs", "create-file-system", "--fs-name", "behind", "--state", "error"))
	created := strings.Fields(l.lab("efs", "create-mount-target", "--file-system", behind, "--zone", "us-east-1b"))
	address := l.kubectl("get", "node", "node-2", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	l.kubectl("-n", ns, "create", "secret", "generic", "keys", "--from-file=tls.pem="+l.serverCertificate(foreignName))
	l.apply(ns, fmt.Sprintf(foreignServer, created[len(created)-1], address))
	l.wait(ns, "condition=Ready", "pod/server")

	l.apply(system, fmt.Sprintf(pinnedTable, foreign, foreignName, address))
	l.Cleanup(func() { l.kubectl("-n", system, "delete", "configmap", "efs-stunnel-pinned", "--ignore-not-found") })
	l.apply(ns, claim("data", class, "file_system_id: "+foreign)+userOf("node-1", "data"))
	data := l.waitForClaim(ns, "data")
	l.wait(ns, "condition=Ready", "pod/user")
	l.inPod(ns, "echo foreign > /data/file")
	stored := directory{lab: l, volume: data.volume, fileSystem: behind, path: data.path}
	stored.expectFile("file", "foreign\n")

	l.kubectl("-n", ns, "delete", "pod", "user", "--timeout="+limit.String())
	l.kubectl("-n", ns, "delete", "pvc", "data")
	l.wait(ns, "delete", "pv/"+data.volume)
	stored.waitForRemoved()
	l.kubectl("-n", system, "delete", "configmap", "efs-stunnel-pinned")
	l.waitForUnused(foreign) // its port and root volume are removed after three listings without it
	l.lab("efs", "delete-file-system", behind, "--cascade")
}

// serverCertificate makes a file with a key and a certificate of the authority that nodes trust for mount
// targets.
func (l *lab) serverCertificate(host string) (file string) {
	l.Helper()
	authority, err := tls.LoadX509KeyPair(filepath.Join(l.dir, "pki", "efs-ca.crt"), filepath.Join(l.dir, "pki", "efs-ca.key"))
	if err != nil {
		l.Fatal(err)
	}
	issuer, err := x509.ParseCertificate(authority.Certificate[0])
	if err != nil {
		l.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		l.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, leaf, issuer, key.Public(), authority.PrivateKey)
	if err != nil {
		l.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		l.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})...)
	file = filepath.Join(l.TempDir(), "tls.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		l.Fatal(err)
	}
	return file
}
