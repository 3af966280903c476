package efsapi

import (
	"encoding/json"
	"errors"
	"net/http"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

// createAccessPoint follows
// https://docs.aws.amazon.com/efs/latest/ug/API_CreateAccessPoint.html. It answers that the access point is being
// created, and serves it within seconds.
func (s *Server) createAccessPoint(c call) (any, *apiError) {
	var in accessPoint
	if err := json.NewDecoder(c.Body).Decode(&in); err != nil {
		return nil, badRequest("The request's body is no JSON: " + err.Error())
	}
	if len(in.ClientToken) < 1 || len(in.ClientToken) > 64 {
		return nil, badRequest("ClientToken must have 1 to 64 characters.")
	}
	if _, ok := c.inventory.FileSystems[in.FileSystemID]; !ok {
		return nil, fileSystemNotFound(in.FileSystemID)
	}
	point, err := s.Inventory.CreateAccessPoint(in.request())
	switch {
	case errors.Is(err, inventory.ErrTokenUsed):
		return nil, &apiError{http.StatusConflict, "AccessPointAlreadyExists", "Access point with the client token already exists.", point.ID}
	case errors.Is(err, inventory.ErrTooManyAccessPoints):
		return nil, newError(http.StatusForbidden, "AccessPointLimitExceeded", err.Error())
	case err != nil:
		return nil, badRequest(err.Error())
	}
	point.State = inventory.Creating
	return s.accessPoint(point), nil
}

func (in accessPoint) request() inventory.NewAccessPoint {
	r := inventory.NewAccessPoint{
		FileSystemID: in.FileSystemID, ClientToken: in.ClientToken, Path: in.RootDirectory.Path, Tags: mapped(in.Tags),
	}
	if u := in.PosixUser; u != nil {
		r.PosixUser = &inventory.PosixUser{UID: u.UID, GID: u.GID}
	}
	if c := in.RootDirectory.CreationInfo; c != nil {
		r.CreationInfo = &inventory.CreationInfo{OwnerUID: c.OwnerUID, OwnerGID: c.OwnerGID, Permissions: c.Permissions}
	}
	return r
}

func mapped(list []tag) map[string]string {
	tags := make(map[string]string, len(list))
	for _, t := range list {
		tags[t.Key] = t.Value
	}
	return tags
}

func (s *Server) deleteAccessPoint(c call) (any, *apiError) {
	id := c.PathValue("id")
	if err := s.Inventory.DeleteAccessPoint(id); err != nil {
		return nil, accessPointNotFound(id)
	}
	return struct{}{}, nil
}

// tagResource tags access points. The product tags nothing else.
func (s *Server) tagResource(c call) (any, *apiError) {
	id := c.PathValue("id")
	if _, ok := c.inventory.AccessPoints[id]; !ok {
		return nil, accessPointNotFound(id)
	}
	var in struct{ Tags []tag }
	if err := json.NewDecoder(c.Body).Decode(&in); err != nil {
		return nil, badRequest("The request's body is no JSON: " + err.Error())
	}
	if err := s.Inventory.TagAccessPoint(id, mapped(in.Tags)); err != nil {
		return nil, badRequest(err.Error())
	}
	return struct{}{}, nil
}
