package authority

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Options configure a renewal.
type Options struct {
	Namespace string
	Servers   []string // the names of their Services
	Now       func() time.Time
	Log       *slog.Logger
}

// managedBy marks the Secrets that a renewal may change.
const managedBy = "efs-stunnel-certificates"

// authorityKey is the authorities' key in a Secret, beside the two of corev1.SecretTypeTLS; cert-manager writes it, too.
const authorityKey = "ca.crt"

// secrets holds the Secrets of the namespace by their names; nil for one that does not exist.
type secrets map[string]*corev1.Secret

// Renew makes the certificates of servers and of their clients that are missing, and renews those that end soon. Repeated
// while all are in order, it changes nothing.
func Renew(ctx context.Context, client kubernetes.Interface, o Options) error {
	leaves := o.leaves()
	read, err := o.read(ctx, client, leaves)
	if err != nil {
		return err
	}
	before := state{authority: pairOf(read[wellknown.ServerAuthoritySecret]), leaves: map[leaf]pair{}}
	for _, of := range leaves {
		before.leaves[of] = pairOf(read[of.secret])
	}
	after, err := renewed(before, o.Now())
	if err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	// The authority first: what it has signed must never be all that is left of it.
	if err := o.write(ctx, client, read, wellknown.ServerAuthoritySecret, before.authority, after.authority); err != nil {
		return err
	}
	for _, server := range o.Servers {
		if err := o.annotate(ctx, client, server, string(after.authority.authorities)); err != nil {
			return err
		}
	}
	for _, of := range leaves {
		if err := o.write(ctx, client, read, of.secret, before.leaves[of], after.leaves[of]); err != nil {
			return err
		}
	}
	return nil
}

// leaves returns the certificates of agents and servers. Agents check a server by the name of its Service.
func (o Options) leaves() []leaf {
	all := []leaf{{secret: wellknown.ServerClientSecret, name: "efs-stunnel agents", usage: x509.ExtKeyUsageClientAuth}}
	for _, server := range o.Servers {
		all = append(all, leaf{
			secret: wellknown.ServerCertificateSecret(server), name: server,
			dns: wellknown.ServerHost(server, o.Namespace), usage: x509.ExtKeyUsageServerAuth,
		})
	}
	return all
}

func (o Options) read(ctx context.Context, client kubernetes.Interface, leaves []leaf) (secrets, error) {
	all, names := secrets{}, []string{wellknown.ServerAuthoritySecret}
	for _, of := range leaves {
		names = append(names, of.secret)
	}
	for _, name := range names {
		secret, err := client.CoreV1().Secrets(o.Namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("reading Secret %s: %w", name, err)
		case secret.Labels[wellknown.LabelManagedBy] != managedBy:
			return nil, fmt.Errorf("the Secret %s is not this program's, which writes only those with the label %s=%s: delete the Secret, or this Job and its CronJob",
				name, wellknown.LabelManagedBy, managedBy)
		}
		all[name] = secret
	}
	return all, nil
}

func pairOf(secret *corev1.Secret) pair {
	if secret == nil {
		return pair{}
	}
	return pair{secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], secret.Data[authorityKey]}
}

// write writes a Secret that changes. A write of another renewal at the same time makes it fail: the Job is tried again.
func (o Options) write(ctx context.Context, client kubernetes.Interface, read secrets, name string, before, after pair) (err error) {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	data := map[string][]byte{corev1.TLSCertKey: after.certificate, corev1.TLSPrivateKeyKey: after.key, authorityKey: after.authorities}
	if secret := read[name]; secret != nil {
		secret.Data = data
		_, err = client.CoreV1().Secrets(o.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	} else {
		_, err = client.CoreV1().Secrets(o.Namespace).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: name, Labels: map[string]string{
				"app.kubernetes.io/part-of": "efs-stunnel", wellknown.LabelManagedBy: managedBy,
			}},
			Type: corev1.SecretTypeTLS, Data: data,
		}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s: %w", name, err)
	}
	o.Log.Info("certificate stored", "secret", o.Namespace+"/"+name)
	return nil
}

// annotate writes the authorities to the Service of a server, where the manager reads them.
func (o Options) annotate(ctx context.Context, client kubernetes.Interface, server, authorities string) error {
	service, err := client.CoreV1().Services(o.Namespace).Get(ctx, server, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading Service %s: %w", server, err)
	}
	if service.Annotations[wellknown.AnnotationCACertificates] == authorities {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{wellknown.AnnotationCACertificates: authorities}}})
	if err == nil {
		_, err = client.CoreV1().Services(o.Namespace).Patch(ctx, server, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing annotation %s of Service %s: %w", wellknown.AnnotationCACertificates, server, err)
	}
	o.Log.Info("authorities of a server stored", "service", o.Namespace+"/"+server)
	return nil
}
