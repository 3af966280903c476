package certificates

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// read returns the certificate in a directory, with its key in one file. It is read again each minute, because the
// kubelet changes the files after the Secret. One that has ended is an error, so that it is reported.
func (c *certificate) read(dir string, now time.Time) (*certificate, error) {
	var parts [2][]byte
	for i, name := range []string{"tls.crt", "tls.key"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("reading the mounted Secret %s: %w", wellknown.ServerClientSecret, err)
		}
		parts[i] = append(text, '\n')
	}
	pair, err := tls.X509KeyPair(parts[0], parts[1])
	if err != nil {
		return nil, fmt.Errorf("reading the mounted Secret %s: %w", wellknown.ServerClientSecret, err)
	}
	if end := pair.Leaf.NotAfter; !now.Before(end) {
		return nil, fmt.Errorf("certificate %.200q of Secret %s ended at %s", pair.Leaf.Subject, wellknown.ServerClientSecret, end.UTC().Format(time.RFC3339))
	}
	return &certificate{
		header: header{Identity: c.Identity, Made: now, Until: pair.Leaf.NotAfter},
		file:   slices.Concat(parts[:]...), due: now.Add(syncInterval),
	}, nil
}
