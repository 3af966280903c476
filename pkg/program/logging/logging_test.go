package logging_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"gnuthought.com/efs-stunnel/pkg/program/logging"
)

func TestParseLevel(t *testing.T) {
	tests := map[string]slog.Level{
		"DEBUG": slog.LevelDebug, "debug": slog.LevelDebug,
		"INFO": slog.LevelInfo, "info": slog.LevelInfo,
		"WARNING": slog.LevelWarn, "Warn": slog.LevelWarn,
		"ERROR": slog.LevelError, "CRITICAL": slog.LevelError, "critical": slog.LevelError,
	}
	for text, want := range tests {
		if got, err := logging.ParseLevel(text); err != nil || got != want {
			t.Errorf("%s: got %v and %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "LOUD", "10", "INFO "} {
		if _, err := logging.ParseLevel(text); err == nil || !strings.Contains(err.Error(), "want DEBUG") {
			t.Errorf("%q: got %v, want an error that says what is allowed", text, err)
		}
	}
}

func TestFormats(t *testing.T) {
	var text, object bytes.Buffer
	logging.New(&text, logging.Text, slog.LevelInfo).Info("leading", "reason", "elected")
	logging.New(&object, logging.JSON, slog.LevelInfo).Info("leading", "reason", "elected")
	if want := `level=INFO msg=leading reason=elected`; !strings.Contains(text.String(), want) {
		t.Errorf("got %q, want %q in it", text.String(), want)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(object.Bytes(), &fields); err != nil || fields["msg"] != "leading" || fields["reason"] != "elected" {
		t.Errorf("got %q, %v", object.String(), err)
	}
}

func TestSeveralErrorsAreOneLine(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	for name, err := range map[string]error{
		"joined":    errors.Join(first, second),
		"collected": logging.Errors(first, nil, second),
		"both":      logging.Errors(errors.Join(first, second), logging.Errors()),
		"wrapped":   fmt.Errorf("%w", logging.Errors(logging.Errors(first), second)),
	} {
		for _, format := range []string{logging.Text, logging.JSON} {
			var out bytes.Buffer
			logging.New(&out, format, slog.LevelInfo).Error("failed", "err", err)
			if !strings.Contains(out.String(), `"first; second"`) || !errors.Is(err, second) {
				t.Errorf("%s, %s: got %q, want the errors on one line", name, format, out.String())
			}
		}
	}
	if err := logging.Errors(nil, nil); err != nil {
		t.Errorf("got %v of items without an error", err)
	}
}

func TestLevelHidesWhatIsBelow(t *testing.T) {
	var out bytes.Buffer
	log := logging.New(&out, logging.Text, slog.LevelWarn)
	log.Info("hidden")
	log.Warn("shown")
	if text := out.String(); strings.Contains(text, "hidden") || !strings.Contains(text, "shown") {
		t.Errorf("got %q", text)
	}
}

func nothing(error) bool { return false }

func TestKubernetesIsSilentAboutWhatIsKnown(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	var out bytes.Buffer
	forbidden := errors.New("forbidden")
	logging.UseForKubernetes(logging.New(&out, logging.Text, slog.LevelInfo), func(err error) bool { return errors.Is(err, forbidden) })
	log := klog.FromContext(t.Context()).WithValues("lock", "l").WithName("elector")
	log.Error(fmt.Errorf("listing nodes: %w", forbidden), "hidden")
	log.Info("hidden", "err", forbidden)
	log.Error(errors.New("no route to host"), "shown")
	utilruntime.HandleErrorWithContext(t.Context(), forbidden, "hidden")
	if text := out.String(); strings.Contains(text, "hidden") || !strings.Contains(text, "shown") || !strings.Contains(text, "lock=l") {
		t.Errorf("got %s", text)
	}
}

func TestKubernetesLogsThroughOurs(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	tests := map[string]struct {
		level         slog.Level
		shown, hidden []string
	}{
		"info":  {slog.LevelInfo, []string{"level=INFO msg=plain", "level=ERROR msg=failed", "err=why"}, []string{"verbose"}},
		"debug": {slog.LevelDebug, []string{"level=DEBUG msg=verbose", "msg=plain"}, []string{"chatter"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			logging.UseForKubernetes(logging.New(&out, logging.Text, tt.level), nothing)
			log := klog.FromContext(t.Context())
			log.Info("plain")
			log.V(4).Info("verbose")
			log.V(5).Info("chatter")
			log.Error(errors.New("why"), "failed")
			klog.Flush()
			for _, want := range tt.shown {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing in %s", want, out.String())
				}
			}
			for _, text := range tt.hidden {
				if strings.Contains(out.String(), text) {
					t.Errorf("%q is in %s", text, out.String())
				}
			}
		})
	}
}
