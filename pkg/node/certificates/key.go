package certificates

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
)

const keyType = "PRIVATE KEY" // PKCS #8

// ensureKey reads the key that an earlier run of the agent stored, or makes one, which takes a second.
func (r *Renewer) ensureKey() error {
	if r.key != nil {
		return nil
	}
	text, err := r.options.Dir.Key().Read()
	if err != nil {
		return err
	}
	key, err := readKey(text)
	if err != nil {
		if text != nil {
			r.options.Log.Warn("stored private key cannot be used; making a new one", "err", err)
		}
		if key, text, err = newKey(); err != nil {
			return err
		}
	}
	if err := r.options.Dir.Key().Write(text); err != nil {
		return err
	}
	r.key, r.keyPEM = key, text
	return nil
}

func readKey(text []byte) (*rsa.PrivateKey, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != keyType || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("reading the private key: the file has no key in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the private key: %w", err)
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok || key.N.BitLen() != clientcert.KeyBits {
		return nil, errors.New("reading the private key: it is not an RSA key of the expected size")
	}
	return key, nil
}

func newKey() (*rsa.PrivateKey, []byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, clientcert.KeyBits)
	if err != nil {
		return nil, nil, fmt.Errorf("making a private key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("making a private key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der}), nil
}
