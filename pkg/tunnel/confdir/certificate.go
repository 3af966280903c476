package confdir

import (
	"fmt"

	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
)

// KeyFile is where the key of all client certificates is.
func (d Dir) KeyFile() string { return d.prefix + suffixKey }

// Key is that key in PEM, nil when there is none.
func (d Dir) Key() ([]byte, error) { return read(d.KeyFile()) }

// WriteKey keeps it where only its owner can read it. Equal bytes are not written again.
func (d Dir) WriteKey(text []byte) error {
	_, err := put(d.KeyFile(), text, keyMode)
	return err
}

// CertificateFile is where a tunnel's client certificate is.
func (d Dir) CertificateFile(name string) string {
	return d.prefix + beforeTunnel + name + afterTunnel
}

// Certificate is a tunnel's client certificate in PEM, nil when it has none.
func (d Dir) Certificate(name string) ([]byte, error) {
	if err := spec.CheckName(name); err != nil {
		return nil, fmt.Errorf("reading a client certificate: %w", err)
	}
	return read(d.CertificateFile(name))
}

// WriteCertificate puts it in place. Equal bytes are not written again.
func (d Dir) WriteCertificate(name string, text []byte) error {
	if err := spec.CheckName(name); err != nil {
		return fmt.Errorf("writing a client certificate: %w", err)
	}
	_, err := put(d.CertificateFile(name), text, fileMode)
	return err
}

// RemoveCertificate takes it away. One that is gone already is fine.
func (d Dir) RemoveCertificate(name string) error { return remove(name, d.CertificateFile(name)) }
