package caches

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// TestIsCurrent has claims change before and after the version of the apiserver is read, and has the cache's
// watch cut off.
func TestIsCurrent(t *testing.T) {
	for name, tt := range map[string]struct {
		before, onList func(*claimsAPI)
		refused        bool
		want           bool
	}{
		"a claim is created afterwards":                         {onList: func(api *claimsAPI) { api.create() }, want: true},
		"a claim is deleted afterwards":                         {onList: func(api *claimsAPI) { api.deleteOne() }, want: true},
		"nothing changes":                                       {},
		"claims changed before only":                            {before: func(api *claimsAPI) { api.create() }},
		"the cache is cut off":                                  {before: (*claimsAPI).hold, onList: func(api *claimsAPI) { api.create() }},
		"the cache is cut off, and has not seen what is gone":   {before: func(api *claimsAPI) { api.hold(); api.deleteOne() }, onList: func(api *claimsAPI) { api.create() }},
		"the version cannot be read, and a claim is created":    {refused: true, onList: func(api *claimsAPI) { api.create() }},
		"etcd was restored":                                     {before: (*claimsAPI).goBack},
		"etcd was restored, and claims are deleted":             {before: (*claimsAPI).goBack, onList: func(api *claimsAPI) { api.deleteOne() }},
		"the cache was cut off, and events come again in time":  {before: func(api *claimsAPI) { api.hold(); api.deleteOne() }, onList: afterwards(currentTime/2, func(api *claimsAPI) { api.create(); api.release() }), want: true},
		"the cache was cut off, and events come again too late": {before: func(api *claimsAPI) { api.hold(); api.deleteOne() }, onList: afterwards(2*currentTime, func(api *claimsAPI) { api.create(); api.release() })},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, api := run(t, 3)
				if tt.before != nil {
					tt.before(api)
				}
				synctest.Wait()
				if tt.onList != nil {
					api.onList = func() { tt.onList(api) }
				}
				if tt.refused {
					refuse(t, c, api)
				}
				begin, lists := time.Now(), api.listed()
				got := c.IsCurrent(t.Context(), c.Claims)
				if got != tt.want {
					t.Errorf("got %v, want %v", got, tt.want)
				}
				if got && Count(c.Claims) != len(api.claims) {
					t.Errorf("the cache has %d claims, and the apiserver %d", Count(c.Claims), len(api.claims))
				}
				if took := time.Since(begin); took > currentTime {
					t.Errorf("it took %s", took)
				}
				if lists := api.listed() - lists; lists != 1 {
					t.Errorf("claims were listed %d times", lists)
				}
				synctest.Wait()
				<-time.After(3 * currentTime) // for what comes too late
			})
		})
	}
}

func afterwards(wait time.Duration, do func(*claimsAPI)) func(*claimsAPI) {
	return func(api *claimsAPI) { time.AfterFunc(wait, func() { do(api) }) }
}

// refuse has lists of metadata refused, after what a test does with one.
func refuse(t *testing.T, c *Caches, api *claimsAPI) {
	t.Helper()
	client, ok := c.metadata.(*metadatafake.FakeMetadataClient)
	if !ok {
		t.Fatalf("%T", c.metadata)
	}
	client.PrependReactor("list", "persistentvolumeclaims", func(clienttesting.Action) (bool, apiruntime.Object, error) {
		api.list()
		api.onList()
		return true, nil, errors.New("refused")
	})
}

// TestIsCurrentReadsOneObject: the version of a list does not need its objects. It must not be that of the
// apiserver's cache either, which version 0 would be.
func TestIsCurrentReadsOneObject(t *testing.T) {
	requests := make(chan *url.URL, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	lists, err := metadata.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(fake.NewClientset(), lists, "efs-stunnel")
	if err != nil {
		t.Fatal(err)
	}
	if c.IsCurrent(t.Context(), c.Volumes) {
		t.Error("the cache is current although the apiserver's version was refused")
	}
	if request := <-requests; request.Path != "/api/v1/persistentvolumes" || request.RawQuery != "limit=1" {
		t.Errorf("the request is %s, want a list of volumes with the limit 1 and nothing else", request)
	}
}
