package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// TestInterruptedRunDeletesItsJob needs HTTP: the fake client does not heed the end of a context.
func TestInterruptedRunDeletesItsJob(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	var deleted atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = &corev1.PodList{}
		switch {
		case r.Method == http.MethodPost:
			job := &batchv1.Job{}
			if err := json.NewDecoder(r.Body).Decode(job); err != nil {
				t.Error(err)
			}
			answer = job
		case r.Method == http.MethodDelete:
			deleted.Store(strings.HasPrefix(r.URL.Path, "/apis/batch/v1/namespaces/efs-stunnel/jobs/efs-ledger-"+testFS))
		default:
			interrupt(errors.New("interrupted"))
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	r := Runner{
		Client: client, Settings: mountjobs.Settings{Namespace: "efs-stunnel", Image: "image"},
		Aliases: func(string) []string { return nil },
		Used:    func(context.Context, string) (bool, error) { return false, nil },
		Waiting: func(string, string) {},
	}
	_, err = r.Ask(ctx, ToEach([]string{testFS}, requests.Request{Do: requests.ListTrash}))
	if err == nil || !strings.Contains(err.Error(), "interrupted") || !deleted.Load() {
		t.Errorf("%v; deleted: %v", err, deleted.Load())
	}
}
