package confdir

import (
	"fmt"

	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
)

// KeyFile returns the path of the private key of all client certificates.
func (d Dir) KeyFile() string { return d.prefix + suffixKey }

// Key reads the private key in PEM, nil if there is none.
func (d Dir) Key() ([]byte, error) { return readFile(d.KeyFile()) }

// WriteKey writes the private key, readable for its owner only. It does not write equal bytes again.
func (d Dir) WriteKey(text []byte) error {
	_, err := replaceFile(d.KeyFile(), text, keyMode)
	return err
}

// CertificateFile returns the path of a tunnel's client certificate.
func (d Dir) CertificateFile(name string) string {
	return d.prefix + certificatePrefix + name + certificateSuffix
}

// Certificate reads a tunnel's client certificate in PEM, nil if there is none.
func (d Dir) Certificate(name string) ([]byte, error) {
	if err := spec.CheckName(name); err != nil {
		return nil, fmt.Errorf("reading a client certificate: %w", err)
	}
	return readFile(d.CertificateFile(name))
}

// WriteCertificate writes a tunnel's client certificate. It does not write equal bytes again.
func (d Dir) WriteCertificate(name string, text []byte) error {
	if err := spec.CheckName(name); err != nil {
		return fmt.Errorf("writing a client certificate: %w", err)
	}
	_, err := replaceFile(d.CertificateFile(name), text, fileMode)
	return err
}

// RemoveCertificate removes a tunnel's client certificate, if there is one.
func (d Dir) RemoveCertificate(name string) error { return removeFile(name, d.CertificateFile(name)) }
