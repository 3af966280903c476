package ports_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// storedTable is the table's ConfigMap with a text.
func storedTable(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: wellknown.TargetsConfigMap, UID: "uid-1", ResourceVersion: "7"},
		Data:       map[string]string{wellknown.TargetsKey: text},
	}
}

func viewOf(t *testing.T, table *corev1.ConfigMap) *corev1.ConfigMap {
	t.Helper()
	view, err := ports.NewView(table)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// randomTable has mount targets in six zones, and as little in common between file systems as EFS gives them.
func randomTable(fileSystems int) ports.Table {
	random, table := rand.New(rand.NewPCG(1, 2)), ports.Table{Targets: map[string]ports.Target{}}
	for n := range fileSystems {
		id := fmt.Sprintf("fs-0%016x", random.Uint64())
		target := ports.Target{
			Name: fmt.Sprintf("team-%d", random.IntN(1000)), Port: 20490 + n, DNSName: id + ".efs.us-east-1.amazonaws.com",
			AddressBySubnet: map[string]netip.Addr{}, AddressByZone: map[string]netip.Addr{},
		}
		for zone := range 6 {
			address := netip.AddrFrom4([4]byte{10, byte(zone), byte(random.IntN(256)), byte(random.IntN(256))})
			target.AddressBySubnet[fmt.Sprintf("subnet-0123456789abcde%02d", zone)] = address
			target.AddressByZone["us-east-1"+string(rune('a'+zone))] = address
		}
		table.Targets[id] = target
	}
	return table
}

// TestTheViewOfAFullTableIsSmall: 5,000 nodes receive less than 1 GB for a change.
func TestTheViewOfAFullTableIsSmall(t *testing.T) {
	text := string(ports.Encode(randomTable(1430)))
	if len(text) < ports.MaxTableBytes-(20<<10) || len(text) > ports.MaxTableBytes {
		t.Fatalf("the table has %d bytes", len(text))
	}
	table := storedTable(text)
	view := viewOf(t, table)
	if size := view.Size(); size > 160<<10 {
		t.Errorf("the view has %d bytes for a table of %d", size, len(text))
	}
	t.Logf("a view of %d bytes for a table of %d", view.Size(), len(text))
	if got, err := ports.ReadView(view, table); err != nil || got != text {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
}

func TestViewsThatAreRefused(t *testing.T) {
	table := storedTable("efs_stunnel_targets: {}\n")
	compressed := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write([]byte(text))
		if err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	set := func(content []byte) func(*corev1.ConfigMap) {
		return func(view *corev1.ConfigMap) {
			for key := range view.BinaryData {
				view.BinaryData[key] = content
			}
		}
	}
	good := compressed("efs_stunnel_targets: {}\n")
	tests := map[string]struct {
		change func(view *corev1.ConfigMap)
		want   string
	}{
		"of an earlier version":        {func(*corev1.ConfigMap) { table.ResourceVersion = "8" }, `version "uid-1/7" of the table, and the table has "uid-1/8"`},
		"of an earlier ConfigMap":      {func(*corev1.ConfigMap) { table.UID = "uid-2" }, "version"},
		"without a version":            {func(view *corev1.ConfigMap) { view.Data = nil }, `version ""`},
		"without a text":               {func(view *corev1.ConfigMap) { view.BinaryData = nil }, "EOF"},
		"that is not compressed":       {set([]byte("efs_stunnel_targets: {}\n")), "gzip"},
		"that is cut":                  {set(good[:len(good)-1]), "EOF"},
		"that has changed":             {set(append(bytes.Clone(good[:len(good)-5]), 1, 2, 3, 4, 5)), "checksum"},
		"that has something behind it": {set(append(bytes.Clone(good), "more"...)), "EOF"},
		"that is a bomb":               {set(compressed(strings.Repeat("a", 64<<20))), "more than 1048576 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			table = storedTable("efs_stunnel_targets: {}\n")
			view := viewOf(t, table)
			tt.change(view)
			if text, err := ports.ReadView(view, table); err == nil || text != "" || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("read %d bytes, %v; want an error with %q", len(text), err, tt.want)
			}
		})
	}
	if _, err := ports.ReadView(nil, table); err == nil {
		t.Error("no view is one")
	}
}

// TestATableThatCannotBeCompressed has no view, because the apiserver might refuse it.
func TestATableThatCannotBeCompressed(t *testing.T) {
	random, text := rand.New(rand.NewPCG(1, 2)), make([]byte, 1<<20)
	for i := range text {
		text[i] = byte(random.Uint32())
	}
	if _, err := ports.NewView(storedTable(string(text))); err == nil {
		t.Error("it has a view")
	}
}
