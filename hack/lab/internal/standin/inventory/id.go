package inventory

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
)

// idDigits is the length of today's EFS ids after the dash.
const idDigits = 17

// RandomID makes an id as EFS does: the prefix, a dash and 17 hex digits.
func RandomID(prefix string) string {
	random := make([]byte, (idDigits+1)/2)
	_, _ = rand.Read(random) // never fails: crypto/rand ends the program instead
	return prefix + "-" + hex.EncodeToString(random)[:idDigits]
}

// checkID accepts what the API itself accepts: 8 to 40 hex digits.
func checkID(prefix, id string) error {
	if regexp.MustCompile(`^` + prefix + `-[0-9a-f]{8,40}$`).MatchString(id) {
		return nil
	}
	return fmt.Errorf("id %q: want %s- and 8 to 40 of 0-9 and a-f", id, prefix)
}
