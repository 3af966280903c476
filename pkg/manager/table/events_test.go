package table

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

func awsError(request int, code, message string) error {
	return fmt.Errorf("listing file systems: https response error StatusCode: 400, RequestID: 1a2b-%d, %w",
		request, &smithy.GenericAPIError{Code: code, Message: message})
}

func unreachable(port int) error {
	return fmt.Errorf("listing file systems: %w", &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("10.0.0.1:%d: i/o timeout", port)})
}

func TestDiscoveryFailedSaysWhatToDo(t *testing.T) {
	tests := map[string]struct {
		err  error
		want []string // parts
	}{
		"rights":      {awsError(1, "AccessDeniedException", "User x is not authorized"), []string{"User x is not authorized", "elasticfilesystem:DescribeMountTargets"}},
		"credentials": {awsError(1, "ExpiredTokenException", "expired"), []string{"ExpiredTokenException: expired", "Renew"}},
		"throttling":  {awsError(1, "ThrottlingException", "slow down"), []string{"--efs-polling-interval"}},
		"network":     {unreachable(40001), []string{"i/o timeout", "VPC endpoint"}},
		"a timeout":   {fmt.Errorf("listing: %w", context.DeadlineExceeded), []string{"VPC endpoint"}},
		"anything":    {errors.New("no region, RequestID: 4711-a"), []string{"no region. ", "--aws-region"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			all := pollConditions(inventory{failure: tt.err})
			if len(all) != 1 || all[0].Reason != "DiscoveryFailed" || all[0].happened {
				t.Fatalf("got %+v", all)
			}
			for _, part := range tt.want {
				if !strings.Contains(all[0].Message, part) {
					t.Errorf("message %q lacks %q", all[0].Message, part)
				}
			}
			if strings.Contains(strings.ToLower(all[0].Message), "requestid") {
				t.Errorf("message %q has a request id", all[0].Message)
			}
		})
	}
}

func TestOneCauseIsOneCondition(t *testing.T) {
	failed := map[string]error{"fs-other": errors.New("another")}
	for i := range 7 {
		id := fmt.Sprintf("fs-%d", i)
		failed[id] = fmt.Errorf("listing mount targets of %s: %w", id, awsError(i, "AccessDeniedException", "no"))
	}
	var got []string
	for _, c := range fileSystemConditions(inventory{listing: efs.Listing{Failed: failed}, existence: map[string]existence{"fs-9": {err: errBoom}, "fs-8": {}}}) {
		got = append(got, c.Message[:strings.Index(c.Message, "could not")+len("could not")]+c.Message[strings.LastIndex(c.Message, ":"):])
	}
	if len(got) != 3 || !slices.ContainsFunc(got, func(m string) bool { return strings.Contains(m, "fs-0, fs-1, fs-2, fs-3, fs-4 and 2 others") }) {
		t.Errorf("got %q", got)
	}
}

// A throttled account fails for other file systems at each poll.
func TestConditionsAreByCause(t *testing.T) {
	of := func(id string) string {
		failed := map[string]error{id: awsError(1, "ThrottlingException", "on "+id)}
		return fileSystemConditions(inventory{listing: efs.Listing{Failed: failed}})[0].Detail
	}
	if a, b := of("fs-1a"), of("fs-abc"); a != b {
		t.Errorf("keys %q and %q", a, b)
	}
}

func TestPortNotices(t *testing.T) {
	volume := claimed("v", "fs-1", 20490)
	got := portNotices([]ports.Event{
		{Reason: wellknown.EventFileSystemFound, FileSystem: "fs-1", Message: "shared has port 20490"},
		{Reason: wellknown.EventFileSystemGone, FileSystem: "fs-1", Message: "it is gone"},
		{Reason: wellknown.EventFileSystemMissing, FileSystem: "fs-1", Message: "not listed"},
		{Reason: wellknown.EventFileSystemUnusable, FileSystem: "fs-1", Message: "creating"},
		{Reason: wellknown.EventOutOfPorts, FileSystem: "fs-1", Message: "no port is left for fs-1"},
		{Reason: wellknown.EventPortConflict, Volume: "v", Message: "its annotation is wrong"},
	}, []*corev1.PersistentVolume{volume})
	of := func(kind status.Kind, name, reason, message, detail string) notice {
		return notice{Condition: status.Condition{Subject: status.Subject{Kind: kind, Name: name}, Reason: reason, Message: message, Detail: detail}}
	}
	want := []notice{
		of(status.FileSystem, "fs-1", "FileSystemFound", "fs-1: shared has port 20490", "shared has port 20490"),
		of(status.FileSystem, "fs-1", "FileSystemGone", "fs-1: it is gone", "it is gone"),
		of(status.FileSystem, "fs-1", "FileSystemMissing", "fs-1: not listed", "not listed"),
		of(status.FileSystem, "fs-1", "FileSystemUnusable", "fs-1: creating", "creating"),
		of(status.FileSystem, "fs-1", "OutOfPorts", "no port is left for fs-1", "no port is left for fs-1"),
		of(status.Volume, "v", "PortConflict", "v: its annotation is wrong", "its annotation is wrong"),
	}
	want[0].happened, want[1].happened, want[5].about = true, true, volume
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(notice{})); diff != "" {
		t.Errorf("notices mismatch (-want +got):\n%s", diff)
	}
}

func TestReporter(t *testing.T) { synctest.Test(t, testReporter) }

func testReporter(t *testing.T) {
	var log bytes.Buffer
	recorder := record.NewFakeRecorder(100)
	r := &reporter{Options: Options{Namespace: namespace, Events: recorder, Log: slog.New(slog.NewTextHandler(&log, nil)), Now: time.Now}}
	recorded := func() (all []string) {
		for len(recorder.Events) > 0 {
			all = append(all, <-recorder.Events)
		}
		return all
	}
	failed := func(key, message string) notice { return condition(key, "DiscoveryFailed", message) }
	first := failed("a", "first words")
	expect := func(step string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, recorded()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}
	r.report(t.Context(), nil, []notice{first})
	expect("without a ConfigMap", "Warning DiscoveryFailed first words")
	named := []runtime.Object{&corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: wellknown.TargetsConfigMap}}
	if diff := cmp.Diff(named, r.objects(first, nil)); diff != "" {
		t.Errorf("the event is on (-want +got):\n%s", diff)
	}
	r.report(t.Context(), nil, []notice{failed("a", "other words")})
	table := tableMap(&ports.Table{})
	r.report(t.Context(), table, []notice{{happened: true, Condition: status.Condition{Reason: "FileSystemFound", Message: "fs-1"}}, first})
	expect("when it is there", "Normal FileSystemFound fs-1")
	r.report(t.Context(), table, []notice{first})
	expect("while it holds")
	<-time.After(24 * time.Hour)
	r.report(t.Context(), table, []notice{first})
	expect("while it holds for long")
	r.report(t.Context(), table, []notice{failed("b", "of something else")})
	expect("when another one takes its place", "Warning DiscoveryFailed of something else")
	r.report(t.Context(), table, nil)
	expect("when none holds", "Normal ProblemEnded DiscoveryFailed of Installation has ended")
	r.report(t.Context(), table, nil)
	expect("after that")
	r.report(t.Context(), table, []notice{first})
	expect("when it is back", "Warning DiscoveryFailed first words")
	if got := strings.Count(log.String(), "problem has begun"); got != 3 {
		t.Errorf("%d lines of log, want 3:\n%s", got, log.String())
	}
	r.report(t.Context(), table, []notice{failed("long", strings.Repeat("é", 1000))})
	if got := recorded(); len(got) != 1 || len(got[0]) > 1024+len("Warning DiscoveryFailed ") || strings.ContainsRune(got[0], '\ufffd') {
		t.Errorf("a long message: %q", got)
	}
}

// TestEventsAreOfTheirObjects also where two conditions have one reason.
func TestEventsAreOfTheirObjects(t *testing.T) {
	recorder := record.NewFakeRecorder(100)
	recorder.IncludeObject = true
	r := &reporter{Options: Options{Namespace: namespace, Events: recorder, Log: slog.New(slog.DiscardHandler), Now: time.Now}}
	var notices []notice
	for _, kind := range []string{"Service", "Secret"} {
		n := condition(kind, wellknown.EventServerRefused, "of the "+kind)
		n.about = &corev1.ObjectReference{APIVersion: "v1", Kind: kind}
		notices = append(notices, n)
	}
	r.report(t.Context(), nil, notices)
	for len(recorder.Events) > 0 {
		event := <-recorder.Events
		for _, kind := range []string{"Service", "Secret"} {
			if strings.Contains(event, "kind="+kind) && !strings.Contains(event, "of the "+kind) {
				t.Errorf("%s has %q", kind, event)
			}
		}
	}
}
