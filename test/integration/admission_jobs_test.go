//go:build integration

package integration_test

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

// managerJobs are of every form that the manager creates.
func managerJobs(env *testenv.Env) map[string]*batchv1.Job {
	env.Helper()
	const uid = "00000000-0000-4000-8000-000000000001"
	plain := mountjobs.Settings{Namespace: env.Namespace, Image: "image"}
	full := mountjobs.Settings{
		Namespace: env.Namespace, Image: "image", ImagePullPolicy: corev1.PullAlways, ImagePullSecrets: []string{"registry"},
		PriorityClassName: "system-cluster-critical", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, NodeSelector: map[string]string{"pool": "storage"},
	}
	ops := []operations.Operation{{
		Kind: operations.Setup, Path: "/team/data",
		Owner: operations.Owner{Volume: "pvc-" + uid, Cluster: env.ClusterUID, Namespace: "team", Claim: "data", ClaimUID: uid},
	}}
	copies := []operations.Operation{ops[0]}
	copies[0].Kind = operations.Clone
	copies[0].Source = operations.Source{SourcePath: "/team/source", SourceVolume: "pvc-source", SourceClaim: "source", SourceClaimUID: "source"}
	built := map[string]*batchv1.Job{}
	for name, settings := range map[string]mountjobs.Settings{"plain": plain, "full": full} {
		job, err := mountjobs.Build(mountjobs.Spec{
			Settings: settings, FileSystemID: "fs-1", Number: 1, Operations: ops, Aliases: []string{"fs-2"}, AvoidNodes: env.Nodes[:1],
		})
		if err != nil {
			env.Fatal(err)
		}
		sweep, err := mountjobs.Build(mountjobs.Spec{Kind: mountjobs.Sweep, Settings: settings, FileSystemID: "fs-1", Number: 1})
		if err != nil {
			env.Fatal(err)
		}
		clone, err := mountjobs.Build(mountjobs.Spec{Kind: mountjobs.Clone, Settings: settings, FileSystemID: "fs-1", Number: 1, Operations: copies})
		if err != nil {
			env.Fatal(err)
		}
		built["mount, "+name], built["sweep, "+name], built["clone, "+name] = job, sweep, clone
	}
	return built
}

// hostileJobs are edits of a mount Job that would give its pod more rights, by the text of their
// refusal.
func hostileJobs() map[string]map[string]func(*corev1.PodSpec) {
	first := func(edit func(*corev1.Container)) func(*corev1.PodSpec) {
		return func(p *corev1.PodSpec) { edit(&p.Containers[0]) }
	}
	option := func(edit func(*corev1.SecurityContext)) func(*corev1.PodSpec) {
		return first(func(c *corev1.Container) { edit(c.SecurityContext) })
	}
	volume := func(source corev1.VolumeSource) func(*corev1.PodSpec) {
		return func(p *corev1.PodSpec) {
			p.Volumes = append(p.Volumes, corev1.Volume{Name: "more", VolumeSource: source})
		}
	}
	return map[string]map[string]func(*corev1.PodSpec){
		"service account efs-worker": {
			"the agent's account":   func(p *corev1.PodSpec) { p.ServiceAccountName = wellknown.NodeServiceAccount },
			"the default account":   func(p *corev1.PodSpec) { p.ServiceAccountName = "" },
			"the manager's account": func(p *corev1.PodSpec) { p.ServiceAccountName = wellknown.ManagerServiceAccount },
		},
		"no token of the apiserver": {
			"a token":            func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = new(true) },
			"a token by default": func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = nil },
		},
		"neither a namespace nor a port": {
			"host network": func(p *corev1.PodSpec) { p.HostNetwork = true },
			"host PID":     func(p *corev1.PodSpec) { p.HostPID = true },
			"host IPC":     func(p *corev1.PodSpec) { p.HostIPC = true },
			"host port":    first(func(c *corev1.Container) { c.Ports = hostPort(8080) }),
		},
		"neither privileged": {
			"privileged":            option(func(o *corev1.SecurityContext) { o.Privileged, o.AllowPrivilegeEscalation = new(true), nil }),
			"escalation":            option(func(o *corev1.SecurityContext) { o.AllowPrivilegeEscalation = new(true) }),
			"escalation by default": option(func(o *corev1.SecurityContext) { o.AllowPrivilegeEscalation = nil }),
			"no options":            first(func(c *corev1.Container) { c.SecurityContext = nil }),
			"a privileged init container": func(p *corev1.PodSpec) {
				init := p.Containers[0].DeepCopy()
				init.Name, init.SecurityContext = "init", &corev1.SecurityContext{Privileged: new(true)}
				p.InitContainers = []corev1.Container{*init}
			},
		},
		"no capabilities but": {
			"SYS_ADMIN":        option(func(o *corev1.SecurityContext) { o.Capabilities.Add = append(o.Capabilities.Add, "SYS_ADMIN") }),
			"all":              option(func(o *corev1.SecurityContext) { o.Capabilities.Add = []corev1.Capability{"ALL"} }),
			"the default ones": option(func(o *corev1.SecurityContext) { o.Capabilities.Drop = nil }),
		},
		"confined": {
			"no seccomp": func(p *corev1.PodSpec) { p.SecurityContext.SeccompProfile = nil },
			"an unconfined container": option(func(o *corev1.SecurityContext) {
				o.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
			}),
			"SELinux":            option(func(o *corev1.SecurityContext) { o.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"} }),
			"SELinux of the pod": func(p *corev1.PodSpec) { p.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"} },
			"AppArmor": option(func(o *corev1.SecurityContext) {
				o.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
			}),
			"options of Windows": func(p *corev1.PodSpec) {
				p.SecurityContext.WindowsOptions = &corev1.WindowsSecurityContextOptions{RunAsUserName: new("Administrator")}
			},
			"settings of the kernel": func(p *corev1.PodSpec) {
				p.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "kernel.shm_rmid_forced", Value: "1"}}
			},
		},
		"mount only root claims": {
			"a folder of the node":  volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
			"a Secret":              volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "efs-manager-aws"}}),
			"a projected Secret":    volume(projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "efs-manager-aws"}}})),
			"the apiserver's token": volume(projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}})),
			"NFS":                   volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "127.0.0.1", Path: "/"}}),
			"another claim":         volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "other"}}),
		},
		"read no Secrets": {
			"a variable": first(func(c *corev1.Container) {
				key := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "efs-manager-aws"}, Key: "key"}
				c.Env = []corev1.EnvVar{{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: key}}}
			}),
			"all variables": first(func(c *corev1.Container) {
				c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "efs-manager-aws"}}}}
			}),
		},
		"ephemeral containers not allowed": { // by the apiserver's own validation
			"an ephemeral container": func(p *corev1.PodSpec) {
				p.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "image"}}}
			},
		},
	}
}

func projected(sources ...corev1.VolumeProjection) corev1.VolumeSource {
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}
}

func TestManagerMayCreateMountJobsOnly(t *testing.T) {
	env := newEnvWithPolicies(t)
	jobs := managerClient(env, wellknown.Namespace).BatchV1().Jobs(env.Namespace)
	built := managerJobs(env)
	for text, edits := range hostileJobs() {
		for name, edit := range edits {
			t.Run(name, func(*testing.T) {
				job := built["mount, plain"].DeepCopy()
				edit(&job.Spec.Template.Spec)
				waitForRefusal(env, text, func(ctx context.Context) error {
					_, err := jobs.Create(ctx, job, dryRun())
					return err
				})
			})
		}
	}
	for _, key := range []string{"container.apparmor.security.beta.kubernetes.io/mountjob", "k8s.v1.cni.cncf.io/networks", "io.kubernetes.cri-o.userns-mode"} {
		job := built["mount, plain"].DeepCopy()
		job.Spec.Template.Annotations[key] = "unconfined"
		waitForRefusal(env, "no annotations for their pods but", func(ctx context.Context) error {
			_, err := jobs.Create(ctx, job, dryRun())
			return err
		})
	}
	token := built["mount, plain"].DeepCopy()
	token.Spec.Template.Spec.Volumes = append(token.Spec.Template.Spec.Volumes, corev1.Volume{Name: "token", VolumeSource: projected(corev1.VolumeProjection{
		ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "efs-stunnel-worker"},
	})})
	built["with a token for the manager"] = token
	// Administrators create it. Its pod has no more rights than one of the manager's.
	ledger, err := mountjobs.BuildLedger(mountjobs.Spec{Settings: mountjobs.Settings{Namespace: env.Namespace, Image: "image"}, FileSystemID: "fs-1"},
		"bcdfg", requests.Request{Do: requests.ListTrash})
	if err != nil {
		t.Fatal(err)
	}
	built["of the plugin"] = ledger
	for name, job := range built {
		if _, err := jobs.Create(t.Context(), job, dryRun()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	expectOthersUnaffected(env, built["mount, plain"].DeepCopy())
}

// expectOthersUnaffected: the policy is for the manager only, in either of its namespaces.
func expectOthersUnaffected(env *testenv.Env, job *batchv1.Job) {
	env.Helper()
	job.Spec.Template.Spec.HostNetwork = true
	if _, err := env.Client.BatchV1().Jobs(env.Namespace).Create(env.Context(), job, dryRun()); err != nil {
		env.Errorf("an administrator's Job: %v", err)
	}
	waitForRefusal(env, "neither a namespace nor a port", func(ctx context.Context) error {
		_, err := managerClient(env, "openshift-efs-stunnel").BatchV1().Jobs(env.Namespace).Create(ctx, job, dryRun())
		return err
	})
}
