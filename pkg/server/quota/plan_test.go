package quota

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const first = firstProject

func TestPlan(t *testing.T) {
	tests := map[string]struct {
		state state
		want  []action
	}{
		"nothing": {state{}, nil},
		"a new directory": {
			state{wanted: map[string]int64{"/a": 512}, projects: map[string]uint32{"/a": 0}},
			[]action{{first, 512, "/a"}},
		},
		"a new directory has the project of no other, and of none in the trash": {
			state{
				wanted: map[string]int64{"/a": 512, "/b": 512, "/c": 1024}, projects: map[string]uint32{"/a": 0, "/b": first, "/c": 0},
				limits: map[uint32]int64{first: 512, first + 1: 0},
			},
			[]action{{first + 2, 512, "/a"}, {first + 3, 1024, "/c"}},
		},
		"a directory that is not there": {state{wanted: map[string]int64{"/a": 512}}, nil},
		"a project of an administrator": {
			state{wanted: map[string]int64{"/a": 512}, projects: map[string]uint32{"/a": 7}, limits: map[uint32]int64{7: 1024, 8: 1024}},
			[]action{{first, 512, "/a"}},
		},
		"a process died before the limit": {
			state{wanted: map[string]int64{"/a": 512}, projects: map[string]uint32{"/a": first}, limits: map[uint32]int64{first: 0}},
			[]action{{first, 512, "/a"}},
		},
		"grown": {
			state{wanted: map[string]int64{"/a": 1024}, projects: map[string]uint32{"/a": first}, limits: map[uint32]int64{first: 512}},
			[]action{{project: first, size: 1024}},
		},
		"two directories with one project": {
			state{
				wanted: map[string]int64{"/a": 512, "/b": 512}, projects: map[string]uint32{"/a": first, "/b": first},
				limits: map[uint32]int64{first: 512},
			},
			[]action{{first + 1, 512, "/b"}},
		},
		"deleted": {state{limits: map[uint32]int64{first: 512}}, []action{{project: first}}},
		"deleted while it is assigned": {
			state{projects: map[string]uint32{"/a": first}, limits: map[uint32]int64{first: 512}},
			nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan(tt.state)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(action{}), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("plan mismatch (-want +got):\n%s", diff)
			}
			if again := plan(tt.state.after(got)); len(again) > 0 {
				t.Errorf("after that, the plan is %+v", again)
			}
		})
	}
}

// after returns the state in which the actions are done.
func (s state) after(actions []action) state {
	next := state{wanted: s.wanted, projects: map[string]uint32{}, limits: map[uint32]int64{}}
	maps.Copy(next.projects, s.projects)
	maps.Copy(next.limits, s.limits)
	for _, a := range actions {
		if a.path != "" {
			next.projects[a.path] = a.project
		}
		next.limits[a.project] = a.size
	}
	return next
}
