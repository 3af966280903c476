package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Causes about the manager.
const (
	RightMissing    Cause = "RightMissing"
	ManagerMissing  Cause = "ManagerMissing"
	ManagerDown     Cause = "ManagerDown"
	ManagerNotReady Cause = "ManagerNotReady"
	NoLeader        Cause = "NoLeader"
	VersionSkew     Cause = "VersionSkew"
	Rollout         Cause = "Rollout"
)

func (f *facts) checkManager() []Result {
	object := named("deployment", wellknown.ManagerDeployment)
	switch {
	case f.lacks("deployments.apps"):
		return nil
	case f.Manager == nil && f.leader().Leads:
		return []Result{note("", object, "the manager runs outside of the namespace: its Lease is renewed")}
	case f.Manager == nil:
		return []Result{problem(ManagerMissing, object, "there is no manager in namespace "+f.Namespace)}
	}
	want, ready := valueOr(f.Manager.Spec.Replicas, 1), f.Manager.Status.ReadyReplicas
	why := f.problemOf(wellknown.ProgramManager)
	switch {
	case ready == 0:
		return []Result{problem(ManagerDown, object, join("no replica is ready; mounted volumes continue", why))}
	case ready < want:
		return []Result{problem(ManagerNotReady, object, join(fmt.Sprintf("%d of %d replicas are ready", ready, want), why))}
	}
	return []Result{Fine(object, "%d of %d replicas are ready", ready, want)}
}

// valueOr returns what an optional field has, or its default.
func valueOr[T any](field *T, otherwise T) T {
	if field == nil {
		return otherwise
	}
	return *field
}

// problemOf returns what keeps a pod of a program from being ready.
func (f *facts) problemOf(program string) string {
	for _, pod := range f.Pods {
		if why := PodProblem(pod); pod.Labels[wellknown.LabelProgram] == program && why != "" {
			return named(KindPod, pod.Name) + ": " + why
		}
	}
	return ""
}

// Leader has what the Lease says.
type Leader struct {
	Holder  string     `json:"holder,omitempty"`
	Renewed *time.Time `json:"renewed,omitempty"`
	Leads   bool       `json:"leads"`
}

func (f *facts) leader() Leader {
	if f.Lease == nil {
		return Leader{}
	}
	spec := f.Lease.Spec
	leader := Leader{Holder: valueOr(spec.HolderIdentity, "")}
	if spec.RenewTime == nil {
		return leader
	}
	leader.Renewed = &spec.RenewTime.Time
	seconds := valueOr(spec.LeaseDurationSeconds, int32(wellknown.DefaultLeaseDuration/time.Second))
	leader.Leads = leader.Holder != "" && f.Now.Before(leader.Renewed.Add(time.Duration(seconds)*time.Second))
	return leader
}

func (f *facts) checkLeader() []Result {
	object, leader := named("lease", wellknown.ManagerLease), f.leader()
	switch {
	case f.lacks("leases.coordination.k8s.io"):
		return nil
	case leader.Leads:
		return []Result{Fine(object, "%s leads", leader.Holder)}
	case f.isElectionOff():
		return []Result{note("", object, "the manager runs without leader election")}
	case leader.Holder != "" && leader.Renewed != nil:
		return []Result{problem(NoLeader, object, fmt.Sprintf("%s has not renewed it for %s: nothing is provisioned or cleaned up",
			leader.Holder, age(f.Now, *leader.Renewed)))}
	}
	return []Result{problem(NoLeader, object, "no manager leads: nothing is provisioned or cleaned up")}
}

// mayLead reports whether a manager leads, as far as that can be read.
func (f *facts) mayLead() bool {
	return f.lacks("leases.coordination.k8s.io") || f.leader().Leads || f.isElectionOff()
}

func (f *facts) isElectionOff() bool {
	return f.Manager != nil && slices.ContainsFunc(f.Manager.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.Contains(c.Args, "--leader-elect=false")
	})
}

func provisionerOf(manager *appsv1.Deployment) string {
	return cmp.Or(setting(manager, "--provisioner", "STORAGE_PROVISIONER_NAME"), wellknown.DefaultProvisioner)
}

// setting reads a flag, or the variable that it takes precedence over; "" is no variable.
func setting(manager *appsv1.Deployment, flag, variable string) string {
	if manager == nil {
		return ""
	}
	value := ""
	for _, container := range manager.Spec.Template.Spec.Containers {
		for _, env := range container.Env {
			if env.Name == variable && variable != "" {
				value = env.Value
			}
		}
		for i, arg := range container.Args {
			if arg == flag && i+1 < len(container.Args) {
				value = container.Args[i+1]
			} else if text, ok := strings.CutPrefix(arg, flag+"="); ok {
				value = text
			}
		}
	}
	return value
}

// Program is one of the three images.
type Program struct {
	Name    string `json:"name"`
	Version string `json:"version"` // the image's tag or digest
	Ready   int32  `json:"ready"`
	Desired int32  `json:"desired"`
	Updated int32  `json:"updated"` // pods that have this image
	Image   string `json:"image"`
}

// programs returns the manager, the agents and what mount Jobs run, as they are to be after a rollout.
func (f *facts) programs() (all []Program) {
	if f.Manager != nil {
		status, image := f.Manager.Status, imageOf(f.Manager.Spec.Template.Spec)
		all = append(all, Program{"manager", versionOf(image), status.ReadyReplicas, valueOr(f.Manager.Spec.Replicas, 1), status.UpdatedReplicas, image})
	}
	if f.Agents != nil {
		status, image := f.Agents.Status, imageOf(f.Agents.Spec.Template.Spec)
		all = append(all, Program{"agents", versionOf(image), status.NumberReady, status.DesiredNumberScheduled, status.UpdatedNumberScheduled, image})
	}
	if image := setting(f.Manager, "--worker-image", "WORKER_IMAGE"); image != "" {
		all = append(all, Program{Name: "mount Jobs", Version: versionOf(image), Image: image})
	}
	return all
}

func imageOf(spec corev1.PodSpec) string {
	if len(spec.Containers) == 0 {
		return ""
	}
	return spec.Containers[0].Image
}

func versionOf(image string) string {
	if _, digest, ok := strings.Cut(image, "@"); ok {
		return digest
	}
	name := image[strings.LastIndex(image, "/")+1:]
	if _, tag, ok := strings.Cut(name, ":"); ok {
		return tag
	}
	return "latest"
}

func (f *facts) checkVersions() (results []Result) {
	versions, programs := map[string]bool{}, f.programs()
	var texts []string
	for _, p := range programs {
		if p.Updated < p.Desired {
			results = append(results, note(Rollout, p.Name, fmt.Sprintf("a rollout runs: %d of %d pods are of version %s", p.Updated, p.Desired, p.Version)))
		}
		if !strings.Contains(p.Image, "@") { // digests of different images always differ
			versions[p.Version] = true
			texts = append(texts, p.Name+" "+p.Version)
		}
	}
	switch {
	case len(versions) > 1:
		return append(results, problem(VersionSkew, "images", "the versions differ: "+strings.Join(texts, ", ")))
	case len(programs) > 0:
		return append(results, Fine("images", "%s", strings.Join(texts, ", ")))
	}
	return results
}
