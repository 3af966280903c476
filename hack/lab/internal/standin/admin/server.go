package admin

import (
	"context"
	"encoding/json"
	"net/http"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/terminator"
)

// Options are the parts of the stand-in that a server controls.
type Options struct {
	Inventory *inventory.Store
	Faults    *efsapi.Faults
	Counters  *efsapi.Counters
	Targets   *terminator.Set
	// Reconcile brings addresses, mount targets and NFS servers in line with the inventory.
	Reconcile func(context.Context) error
	// Ready returns what is missing until everything serves.
	Ready func(context.Context) error
	// RemoveData deletes the files of a file system that no longer exists.
	RemoveData func(fileSystemID string) error
}

// server serves the admin API.
type server struct {
	Options
	mux *http.ServeMux
}

// NewHandler makes the server's side.
func NewHandler(o Options) http.Handler {
	s := &server{o, http.NewServeMux()}
	handle(s, "GET /ready", func(ctx context.Context, _ string, _ none) (any, error) { return nil, o.Ready(ctx) })
	handle(s, "GET /inventory", func(context.Context, string, none) (any, error) { return o.Inventory.Snapshot(), nil })
	handle(s, "GET /status", func(context.Context, string, none) (any, error) {
		return Status{Faults: o.Faults.List(), Calls: o.Counters.Snapshot(), MountTargets: o.Targets.Status()}, nil
	})
	handleCreate(s, "POST /file-systems", o.Inventory.CreateFileSystem)
	handleChange(s, "PATCH /file-systems/{id}", o.Inventory.UpdateFileSystem)
	handle(s, "DELETE /file-systems/{id}", s.deleteFileSystem)
	handleCreate(s, "POST /mount-targets", o.Inventory.CreateMountTarget)
	handle(s, "PATCH /mount-targets/{id}", s.updateMountTarget)
	handleChange(s, "DELETE /mount-targets/{id}", func(id string, _ none) error { return o.Inventory.DeleteMountTarget(id) })
	handleCreate(s, "POST /access-points", o.Inventory.CreateAccessPoint)
	handleChange(s, "PATCH /access-points/{id}", o.Inventory.SetAccessPointState)
	handleChange(s, "DELETE /access-points/{id}", func(id string, _ none) error { return o.Inventory.DeleteAccessPoint(id) })
	handle(s, "PUT /nodes/{id}", func(_ context.Context, _ string, n inventory.Node) (any, error) { return nil, o.Inventory.PutNode(n) })
	handle(s, "DELETE /nodes/{id}", func(_ context.Context, id string, _ none) (any, error) { return nil, o.Inventory.DeleteNode(id) })
	handle(s, "PUT /faults", func(_ context.Context, _ string, f efsapi.Fault) (any, error) { return nil, o.Faults.Set(f) })
	handle(s, "DELETE /faults", s.clearFaults)
	return s.mux
}

// handleCreate adds a resource, and responds once it is served.
func handleCreate[In, Out any](s *server, pattern string, create func(In) (Out, error)) {
	handle(s, pattern, func(ctx context.Context, _ string, in In) (any, error) {
		out, err := create(in)
		if err != nil {
			return nil, err
		}
		return out, s.Reconcile(ctx)
	})
}

// handleChange changes or deletes a resource, and responds once that has taken effect.
func handleChange[In any](s *server, pattern string, change func(id string, in In) error) {
	handle(s, pattern, func(ctx context.Context, id string, in In) (any, error) {
		if err := change(id, in); err != nil {
			return nil, err
		}
		return nil, s.Reconcile(ctx)
	})
}

// handle responds to requests with what fn returns for the id in their path and their body.
func handle[In any](s *server, pattern string, fn func(ctx context.Context, id string, in In) (any, error)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var in In
		var response any
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		err := decoder.Decode(&in)
		if err == nil {
			response, err = fn(r.Context(), r.PathValue("id"), in)
		}
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			response = failure{err.Error()}
		}
		// A client that is gone has no use for the error.
		_ = json.NewEncoder(w).Encode(response)
	})
}

// deletion is the body of a request to delete a file system.
type deletion struct {
	Cascade bool `json:"cascade"`
}

func (s *server) deleteFileSystem(ctx context.Context, id string, d deletion) (any, error) {
	if err := s.Inventory.DeleteFileSystem(id, d.Cascade); err != nil {
		return nil, err
	}
	if err := s.Reconcile(ctx); err != nil {
		return nil, err
	}
	return nil, s.RemoveData(id)
}

func (s *server) clearFaults(ctx context.Context, _ string, _ none) (any, error) {
	s.Faults.Clear()
	return nil, s.Targets.Clear(ctx)
}

func (s *server) updateMountTarget(ctx context.Context, id string, c MountTargetChange) (any, error) {
	target, err := s.Targets.Get(id)
	if err == nil && c.State != "" {
		err = s.Inventory.SetMountTargetState(id, c.State)
	}
	if err == nil && c.Certificate != "" {
		err = target.SetCertificate(c.Certificate)
	}
	if err == nil && c.Delay != nil {
		err = target.SetDelay(*c.Delay)
	}
	if err == nil && c.Plain != nil {
		target.SetPlain(*c.Plain)
	}
	if err == nil && c.Partitions != nil {
		err = target.SetPartitions(*c.Partitions)
	}
	if err == nil && c.Rate != nil {
		err = target.SetRate(*c.Rate)
	}
	if err == nil && c.Mode != "" {
		err = target.SetMode(ctx, c.Mode)
	}
	return nil, err
}
