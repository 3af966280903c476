package efsapi

import (
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/world"
)

func (s *Server) describeFileSystems(c call) (any, *apiError) {
	q := c.URL.Query()
	id, token, marker := q.Get("FileSystemId"), q.Get("CreationToken"), q.Get("Marker")
	size, err := c.size("MaxItems", largestPage, largestPage)
	if err != nil {
		return nil, err
	}
	found := map[string]world.FileSystem{}
	for _, fs := range c.world.FileSystems {
		if (id == "" || fs.ID == id) && (token == "" || fs.CreationToken == token) && !c.empty {
			found[fs.ID] = fs
		}
	}
	if id != "" && len(found) == 0 && !c.empty {
		return nil, fileSystemNotFound(id)
	}
	ids, next, err := page(ranked(found), marker, size)
	if err != nil {
		return nil, err
	}
	answer := fileSystemList{FileSystems: []fileSystem{}, Marker: marker, NextMarker: next}
	for _, id := range ids {
		answer.FileSystems = append(answer.FileSystems, s.fileSystem(c.world, found[id]))
	}
	return answer, nil
}

func (s *Server) describeMountTargets(c call) (any, *apiError) {
	size, err := c.size("MaxItems", mountTargetPage, largestPage)
	if err != nil {
		return nil, err
	}
	found, err := mountTargets(c)
	if err != nil {
		return nil, err
	}
	if c.empty {
		clear(found)
	}
	marker := c.URL.Query().Get("Marker")
	ids, next, err := page(ranked(found), marker, size)
	if err != nil {
		return nil, err
	}
	answer := mountTargetList{MountTargets: []mountTarget{}, Marker: marker, NextMarker: next}
	for _, id := range ids {
		answer.MountTargets = append(answer.MountTargets, s.mountTarget(found[id]))
	}
	return answer, nil
}

// mountTargets finds those that the one required parameter asks for.
func mountTargets(c call) (map[string]world.MountTarget, *apiError) {
	q := c.URL.Query()
	fileSystem, target, point := q.Get("FileSystemId"), q.Get("MountTargetId"), q.Get("AccessPointId")
	if given(fileSystem, target, point) != 1 {
		return nil, badRequest("You must specify exactly one of FileSystemId, MountTargetId and AccessPointId.")
	}
	if target != "" {
		t, ok := c.world.MountTargets[target]
		if !ok {
			return nil, mountTargetNotFound(target)
		}
		return map[string]world.MountTarget{target: t}, nil
	}
	if point != "" {
		p, ok := c.world.AccessPoints[point]
		if !ok {
			return nil, accessPointNotFound(point)
		}
		fileSystem = p.FileSystemID
	}
	if _, ok := c.world.FileSystems[fileSystem]; !ok {
		return nil, fileSystemNotFound(fileSystem)
	}
	found := map[string]world.MountTarget{}
	for _, t := range c.world.MountTargetsOf(fileSystem) {
		found[t.ID] = t
	}
	return found, nil
}

func given(parameters ...string) int {
	n := 0
	for _, p := range parameters {
		if p != "" {
			n++
		}
	}
	return n
}

func (s *Server) describeAccessPoints(c call) (any, *apiError) {
	q := c.URL.Query()
	fileSystem, id := q.Get("FileSystemId"), q.Get("AccessPointId")
	size, err := c.size("MaxResults", largestPage, largestResults)
	if err != nil {
		return nil, err
	}
	if given(fileSystem, id) == 2 {
		return nil, badRequest("You can specify only one of FileSystemId and AccessPointId.")
	}
	if _, ok := c.world.FileSystems[fileSystem]; fileSystem != "" && !ok {
		return nil, fileSystemNotFound(fileSystem)
	}
	if _, ok := c.world.AccessPoints[id]; id != "" && !ok {
		return nil, accessPointNotFound(id)
	}
	found := map[string]world.AccessPoint{}
	for _, p := range c.world.AccessPoints {
		if (fileSystem == "" || p.FileSystemID == fileSystem) && (id == "" || p.ID == id) && !c.empty {
			found[p.ID] = p
		}
	}
	ids, next, err := page(ranked(found), q.Get("NextToken"), size)
	if err != nil {
		return nil, err
	}
	answer := accessPointList{AccessPoints: []accessPoint{}, NextToken: next}
	for _, id := range ids {
		answer.AccessPoints = append(answer.AccessPoints, s.accessPoint(found[id]))
	}
	return answer, nil
}
