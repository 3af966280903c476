package efsapi

import "gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"

func (s *Server) describeFileSystems(c call) (any, *apiError) {
	id, token := c.param("FileSystemId"), c.param("CreationToken")
	found := map[string]inventory.FileSystem{}
	for _, fs := range c.inventory.FileSystems {
		if (id == "" || fs.ID == id) && (token == "" || fs.CreationToken == token) {
			found[fs.ID] = fs
		}
	}
	if id != "" && len(found) == 0 && !c.empty {
		return nil, fileSystemNotFound(id)
	}
	list, next, err := page(c, found, paging{"Marker", "MaxItems", 100, 100}, func(fs inventory.FileSystem) fileSystem { return s.fileSystem(c.inventory, fs) })
	return fileSystemList{FileSystems: list, Marker: c.param("Marker"), NextMarker: next}, err
}

func (s *Server) describeMountTargets(c call) (any, *apiError) {
	found, err := mountTargets(c)
	if err != nil {
		return nil, err
	}
	list, next, err := page(c, found, paging{"Marker", "MaxItems", 10, 100}, s.mountTarget)
	return mountTargetList{MountTargets: list, Marker: c.param("Marker"), NextMarker: next}, err
}

// mountTargets finds the mount targets that the one required parameter selects.
func mountTargets(c call) (map[string]inventory.MountTarget, *apiError) {
	fileSystem, target, point := c.param("FileSystemId"), c.param("MountTargetId"), c.param("AccessPointId")
	if given(fileSystem, target, point) != 1 {
		return nil, badRequest("You must specify exactly one of FileSystemId, MountTargetId and AccessPointId.")
	}
	if target != "" {
		t, ok := c.inventory.MountTargets[target]
		if !ok {
			return nil, mountTargetNotFound(target)
		}
		return map[string]inventory.MountTarget{target: t}, nil
	}
	if point != "" {
		p, ok := c.inventory.AccessPoints[point]
		if !ok {
			return nil, accessPointNotFound(point)
		}
		fileSystem = p.FileSystemID
	}
	if _, ok := c.inventory.FileSystems[fileSystem]; !ok {
		return nil, fileSystemNotFound(fileSystem)
	}
	found := map[string]inventory.MountTarget{}
	for _, t := range c.inventory.MountTargetsOf(fileSystem) {
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
	fileSystem, id := c.param("FileSystemId"), c.param("AccessPointId")
	if given(fileSystem, id) == 2 {
		return nil, badRequest("You can specify only one of FileSystemId and AccessPointId.")
	}
	if _, ok := c.inventory.FileSystems[fileSystem]; fileSystem != "" && !ok {
		return nil, fileSystemNotFound(fileSystem)
	}
	if _, ok := c.inventory.AccessPoints[id]; id != "" && !ok {
		return nil, accessPointNotFound(id)
	}
	found := map[string]inventory.AccessPoint{}
	for _, p := range c.inventory.AccessPoints {
		if (fileSystem == "" || p.FileSystemID == fileSystem) && (id == "" || p.ID == id) {
			found[p.ID] = p
		}
	}
	list, next, err := page(c, found, paging{"NextToken", "MaxResults", 100, 1000}, s.accessPoint)
	return accessPointList{AccessPoints: list, NextToken: next}, err
}
