package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/terminator"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/world"
)

// Options are what a server needs.
type Options struct {
	World    *world.Store
	Faults   *efsapi.Faults
	Counters *efsapi.Counters
	Targets  *terminator.Set
	// Reconcile makes addresses, mount targets and NFS servers those of the world.
	Reconcile func(context.Context) error
	// Ready tells what is missing until everything serves.
	Ready func(context.Context) error
	// RemoveData deletes the files of a file system that is gone.
	RemoveData func(fileSystemID string) error
}

type server struct{ Options }

// NewHandler makes the server's side.
func NewHandler(o Options) http.Handler {
	s := &server{o}
	mux := http.NewServeMux()
	handle := func(pattern string, fn func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			answer, err := fn(r)
			reply(w, answer, err)
		})
	}
	handle("GET /ready", func(r *http.Request) (any, error) { return nil, s.Ready(r.Context()) })
	handle("GET /world", func(*http.Request) (any, error) { return s.World.Snapshot(), nil })
	handle("GET /status", s.status)
	handle("POST /file-systems", s.createFileSystem)
	handle("PATCH /file-systems/{id}", s.updateFileSystem)
	handle("DELETE /file-systems/{id}", s.deleteFileSystem)
	handle("POST /mount-targets", s.createMountTarget)
	handle("PATCH /mount-targets/{id}", s.updateMountTarget)
	handle("DELETE /mount-targets/{id}", s.deleteMountTarget)
	handle("POST /access-points", s.createAccessPoint)
	handle("PATCH /access-points/{id}", s.updateAccessPoint)
	handle("DELETE /access-points/{id}", s.deleteAccessPoint)
	handle("PUT /nodes/{id}", s.putNode)
	handle("DELETE /nodes/{id}", s.deleteNode)
	handle("PUT /faults", s.setFault)
	handle("DELETE /faults", s.clearFaults)
	return mux
}

func (s *server) status(*http.Request) (any, error) {
	return Status{Faults: s.Faults.List(), Calls: s.Counters.Snapshot(), MountTargets: s.Targets.Status()}, nil
}

func (s *server) createFileSystem(r *http.Request) (any, error) {
	return changed(s, r, s.World.CreateFileSystem)
}

func (s *server) createMountTarget(r *http.Request) (any, error) {
	return changed(s, r, s.World.CreateMountTarget)
}

func (s *server) createAccessPoint(r *http.Request) (any, error) {
	return changed(s, r, s.World.CreateAccessPoint)
}

// changed changes the world as the body of the request asks, and waits until
// the change has taken effect.
func changed[In, Out any](s *server, r *http.Request, change func(In) (Out, error)) (any, error) {
	in, err := body[In](r)
	if err != nil {
		return nil, err
	}
	out, err := change(in)
	if err != nil {
		return nil, err
	}
	return out, s.Reconcile(r.Context())
}

func (s *server) updateFileSystem(r *http.Request) (any, error) {
	return changed(s, r, func(c world.FileSystemChange) (any, error) {
		return nil, s.World.UpdateFileSystem(r.PathValue("id"), c)
	})
}

func (s *server) deleteFileSystem(r *http.Request) (any, error) {
	id := r.PathValue("id")
	if err := s.World.DeleteFileSystem(id, r.URL.Query().Get("cascade") == "true"); err != nil {
		return nil, err
	}
	if err := s.Reconcile(r.Context()); err != nil {
		return nil, err
	}
	return nil, s.RemoveData(id)
}

func (s *server) updateMountTarget(r *http.Request) (any, error) {
	c, err := body[MountTargetChange](r)
	if err != nil {
		return nil, err
	}
	target, err := s.Targets.Get(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if c.State != "" {
		err = s.World.SetMountTargetState(target.ID, world.State(c.State))
	}
	if c.Certificate != "" && err == nil {
		err = target.SetCertificate(c.Certificate)
	}
	if c.Mode != "" && err == nil {
		err = target.SetMode(r.Context(), c.Mode)
	}
	return nil, err
}

func (s *server) deleteMountTarget(r *http.Request) (any, error) {
	if err := s.World.DeleteMountTarget(r.PathValue("id")); err != nil {
		return nil, err
	}
	return nil, s.Reconcile(r.Context())
}

func (s *server) updateAccessPoint(r *http.Request) (any, error) {
	return changed(s, r, func(c AccessPointChange) (any, error) {
		return nil, s.World.SetAccessPointState(r.PathValue("id"), world.State(c.State))
	})
}

func (s *server) deleteAccessPoint(r *http.Request) (any, error) {
	if err := s.World.DeleteAccessPoint(r.PathValue("id")); err != nil {
		return nil, err
	}
	return nil, s.Reconcile(r.Context())
}

func (s *server) putNode(r *http.Request) (any, error) {
	n, err := body[world.Node](r)
	if err != nil {
		return nil, err
	}
	return nil, s.World.PutNode(n)
}

func (s *server) deleteNode(r *http.Request) (any, error) {
	return nil, s.World.DeleteNode(r.PathValue("id"))
}

func (s *server) setFault(r *http.Request) (any, error) {
	f, err := body[efsapi.Fault](r)
	if err != nil {
		return nil, err
	}
	return nil, s.Faults.Set(f)
}

func (s *server) clearFaults(r *http.Request) (any, error) {
	s.Faults.Clear()
	return nil, s.Targets.Clear(r.Context())
}

var errBody = errors.New("bad request body")

func body[T any](r *http.Request) (T, error) {
	var v T
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&v); err != nil {
		return v, fmt.Errorf("%w: %w", errBody, err)
	}
	return v, nil
}

func reply(w http.ResponseWriter, answer any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(statusOf(err))
		answer = failure{err.Error()}
	}
	// A client that went away has no use for the error.
	_ = json.NewEncoder(w).Encode(answer)
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, world.ErrNotFound), errors.Is(err, terminator.ErrUnknown):
		return http.StatusNotFound
	case errors.Is(err, world.ErrConflict):
		return http.StatusConflict
	case errors.Is(err, world.ErrInvalid), errors.Is(err, efsapi.ErrFault), errors.Is(err, terminator.ErrInvalid), errors.Is(err, errBody):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}
