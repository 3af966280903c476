package cluster

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// credentials of one run, in files that the programs read.
type credentials struct {
	certificate, key string // the apiserver's, signed by itself
	authority        []byte // PEM, trusted by clients
	serviceAccounts  string // key that signs tokens of service accounts
	tokens           string // file of tokens and their users
	token            string // the administrator's
	kubeconfig       string // the controller-manager's
}

func newCredentials(folder, server string) (credentials, error) {
	c := credentials{
		certificate:     filepath.Join(folder, "apiserver.crt"),
		key:             filepath.Join(folder, "apiserver.key"),
		serviceAccounts: filepath.Join(folder, "service-accounts.key"),
		tokens:          filepath.Join(folder, "tokens.csv"),
		token:           rand.Text(),
		kubeconfig:      filepath.Join(folder, "controller-manager.kubeconfig"),
	}
	if err := c.writeCertificate(); err != nil {
		return c, fmt.Errorf("making the apiserver's certificate: %w", err)
	}
	signing, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return c, fmt.Errorf("making the key of service accounts: %w", err)
	}
	if err := os.WriteFile(c.serviceAccounts, signing, 0o600); err != nil {
		return c, fmt.Errorf("writing the key of service accounts: %w", err)
	}
	return c, c.writeUsers(server)
}

func (c *credentials) writeCertificate() error {
	certificate, key, err := cert.GenerateSelfSignedCertKey(loopback, nil, nil)
	if err != nil {
		return err
	}
	c.authority = certificate // it is self-signed
	if err := os.WriteFile(c.certificate, certificate, 0o600); err != nil {
		return err
	}
	return os.WriteFile(c.key, key, 0o600)
}

// writeUsers gives the controller-manager every right: its roles are not under test.
func (c *credentials) writeUsers(server string) error {
	controllerManager := rand.Text()
	const all = `"system:masters"`
	users := fmt.Sprintf("%s,admin,admin,%s\n%s,system:kube-controller-manager,controller-manager,%s\n", c.token, all, controllerManager, all)
	if err := os.WriteFile(c.tokens, []byte(users), 0o600); err != nil {
		return fmt.Errorf("writing tokens: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: c.authority}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: controllerManager}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*config, c.kubeconfig); err != nil {
		return fmt.Errorf("writing the controller-manager's kubeconfig: %w", err)
	}
	return nil
}

func (c *credentials) config(server string) *rest.Config {
	return &rest.Config{
		Host:            server,
		BearerToken:     c.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority},
		QPS:             -1, // no limit
	}
}
