package certificates

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"gnuthought.com/efs-stunnel/pkg/clientcert"
)

const keyType = "PRIVATE KEY" // PKCS #8

// ensureKey takes the key of an earlier run, or makes one, which takes a second.
func (k *Keeper) ensureKey() error {
	if k.key != nil {
		return nil
	}
	text, err := k.options.Dir.Key()
	if err != nil {
		return err
	}
	key, err := readKey(text)
	if err != nil {
		if text != nil {
			k.options.Log.Warn("key on disk is of no use; there will be another one", "err", err)
		}
		if key, text, err = newKey(); err != nil {
			return err
		}
	}
	if err := k.options.Dir.WriteKey(text); err != nil {
		return err
	}
	k.key, k.keyText = key, text
	return nil
}

func readKey(text []byte) (*rsa.PrivateKey, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != keyType || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errNoKey
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok || key.N.BitLen() != clientcert.KeyBits {
		return nil, errOtherKey
	}
	return key, nil
}

var (
	errNoKey    = errors.New("reading the key: it is none in PEM")
	errOtherKey = errors.New("reading the key: it is of another kind")
)

func newKey() (*rsa.PrivateKey, []byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, clientcert.KeyBits)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der}), nil
}
