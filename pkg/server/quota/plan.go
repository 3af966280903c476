package quota

import (
	"maps"
	"slices"
)

// firstProject is the lowest id of the projects that are the limiter's. All below are an administrator's.
const firstProject = 1 << 30

// state has what plan reads. Sizes are in bytes.
type state struct {
	wanted   map[string]int64  // the largest size of each directory's owners, by its path
	projects map[string]uint32 // of the directories that are there, 0 for none
	limits   map[uint32]int64  // of all projects of files on the disk, 0 for none
}

// action limits a project.
type action struct {
	project uint32
	size    int64  // 0 ends the limit
	path    string // of the directory that is assigned to the project first, with all that is in it; "" for none
}

// plan returns what is to be done for each directory to have a project of its own, limited to its size.
//
//	directory           its project            what is done
//	there               none, or another's     assigned to a new project, then that is limited
//	there               without a limit        the same, with this project: a process may have died before the limit
//	there               with another limit     limited
//	gone, or in trash   with a limit           unlimited
func plan(s state) (actions []action) {
	owners := map[uint32]string{}
	for _, path := range slices.Sorted(maps.Keys(s.projects)) {
		project, size := s.projects[path], s.wanted[path]
		_, taken := owners[project]
		isNew := project < firstProject || taken
		if isNew {
			project = s.free(owners)
		}
		owners[project] = path
		switch {
		case size == 0: // it has lost its owner while it was being assigned
		case isNew, s.limits[project] == 0:
			actions = append(actions, action{project, size, path})
		case s.limits[project] != size:
			actions = append(actions, action{project: project, size: size})
		}
	}
	for _, project := range slices.Sorted(maps.Keys(s.limits)) {
		if owners[project] == "" && project >= firstProject && s.limits[project] != 0 {
			actions = append(actions, action{project: project})
		}
	}
	return actions
}

// free returns a project without files. What is in the trash keeps its own.
func (s state) free(owners map[uint32]string) uint32 {
	for project := uint32(firstProject); ; project++ {
		_, used := s.limits[project]
		_, owned := owners[project]
		if !used && !owned {
			return project
		}
	}
}
