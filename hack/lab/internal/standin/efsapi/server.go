// Package efsapi answers the calls of the EFS REST API that describe file systems, mount targets and
// access points, and those that change access points, and fails on demand.
package efsapi

import (
	"encoding/json"
	"log/slog"
	"net/http"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

// The operations that the stand-in implements, as the API names them.
const (
	DescribeFileSystems  = "DescribeFileSystems"
	DescribeMountTargets = "DescribeMountTargets"
	DescribeAccessPoints = "DescribeAccessPoints"
	CreateAccessPoint    = "CreateAccessPoint"
	DeleteAccessPoint    = "DeleteAccessPoint"
	TagResource          = "TagResource"
)

// Operations lists the operations that the stand-in implements.
func Operations() []string {
	return []string{DescribeFileSystems, DescribeMountTargets, DescribeAccessPoints, CreateAccessPoint, DeleteAccessPoint, TagResource}
}

// Options are the settings of a server.
type Options struct {
	Inventory *inventory.Store
	Faults    *Faults
	Counters  *Counters
	Region    string
	AccountID string
	VPCID     string
	Key       Key
	Log       *slog.Logger
}

// Server is the API's HTTP handler.
type Server struct {
	Options
	mux *http.ServeMux
}

// New makes a server.
func New(o Options) *Server {
	s := &Server{Options: o, mux: http.NewServeMux()}
	s.handle("GET /2015-02-01/file-systems", DescribeFileSystems, s.describeFileSystems)
	s.handle("GET /2015-02-01/mount-targets", DescribeMountTargets, s.describeMountTargets)
	s.handle("GET /2015-02-01/access-points", DescribeAccessPoints, s.describeAccessPoints)
	s.handle("POST /2015-02-01/access-points", CreateAccessPoint, s.createAccessPoint)
	s.handle("DELETE /2015-02-01/access-points/{id}", DeleteAccessPoint, s.deleteAccessPoint)
	s.handle("POST /2015-02-01/resource-tags/{id}", TagResource, s.tagResource)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.Counters.add("unknown", "UnknownOperationException")
		s.fail(w, r, newError(http.StatusNotFound, "UnknownOperationException", "the stand-in does not implement "+r.Method+" "+r.URL.Path))
	})
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// call is one authenticated request with the faults that apply to it.
type call struct {
	*http.Request
	inventory   inventory.Snapshot
	maxPageSize int  // 0 = the API's own
	empty       bool // answer as if there were no resources
}

// param returns a parameter of the request, "" if it is not given.
func (c call) param(name string) string { return c.URL.Query().Get(name) }

type operation func(c call) (any, *apiError)

func (s *Server) handle(pattern, name string, op operation) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		answer, err := s.run(name, r, op)
		if r.Context().Err() != nil {
			s.Counters.add(name, "Hung")
			return
		}
		if err != nil {
			s.Counters.add(name, err.code)
			s.fail(w, r, err)
			return
		}
		s.Counters.add(name, "OK")
		s.reply(w, http.StatusOK, answer)
	})
}

func (s *Server) run(name string, r *http.Request, op operation) (any, *apiError) {
	if err := s.authenticate(r); err != nil {
		return nil, err
	}
	effect := s.Faults.next(name)
	switch effect.kind {
	case Hang:
		<-r.Context().Done()
		return nil, nil
	case Throttle:
		return nil, newError(http.StatusBadRequest, "ThrottlingException", "Rate exceeded")
	case ServerError:
		return nil, newError(http.StatusInternalServerError, "InternalServerError", "An internal error occurred.")
	case AccessDenied:
		return nil, newError(http.StatusForbidden, "AccessDeniedException",
			"User: arn:aws:sts::"+s.AccountID+":assumed-role/lab-node/lab is not authorized to perform: elasticfilesystem:"+
				name+" on the specified resource")
	}
	return op(call{Request: r, inventory: s.Inventory.Snapshot(), maxPageSize: effect.pageSize, empty: effect.kind == Empty})
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err *apiError) {
	s.Log.Debug("api call failed", "operation", r.URL.String(), "reason", err.code)
	w.Header().Set("x-amzn-ErrorType", err.code)
	body := map[string]string{"ErrorCode": err.code, "Message": err.message}
	if err.about != "" {
		body["AccessPointId"] = err.about
	}
	s.reply(w, err.status, body)
}

func (s *Server) reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("x-amzn-RequestId", inventory.RandomID("request"))
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.Log.Debug("sending an api answer failed", "err", err)
	}
}

// apiError is an error of the API as clients see it.
type apiError struct {
	status  int
	code    string
	message string
	about   string // id of the access point that the error is about, if its code has one
}

func newError(status int, code, message string) *apiError {
	return &apiError{status: status, code: code, message: message}
}

func badRequest(message string) *apiError {
	return newError(http.StatusBadRequest, "BadRequest", message)
}

func fileSystemNotFound(id string) *apiError  { return notFound("FileSystem", id) }
func mountTargetNotFound(id string) *apiError { return notFound("MountTarget", id) }
func accessPointNotFound(id string) *apiError { return notFound("AccessPoint", id) }

func notFound(kind, id string) *apiError {
	return newError(http.StatusNotFound, kind+"NotFound", kind+" '"+id+"' does not exist.")
}
