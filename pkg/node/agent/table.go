package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

// DefaultViewWait is how long a view may be late, and up to twice that: not all agents read the table at once. An
// apiserver needs some seconds to send the table's metadata to thousands of nodes, and the view comes after it.
const DefaultViewWait = 5 * time.Second

// readTimeout limits one reading of the table.
const readTimeout = 30 * time.Second

// tableWatch puts the text of the table into the inbox. It watches the table's metadata and its view, because a change
// of a full table itself would send a megabyte to every node. It reads the table where the view is missing, late or
// unreadable: without a manager, with one of a version without views, or after an edit by hand.
type tableWatch struct {
	*Agent
	table, view cache.SharedIndexInformer // of the table's metadata, and of its view
	wake        loop.Wake                 // of follow
	version     string                    // of the table in the inbox; "" for none; only follow uses it
}

func (a *Agent) newTableWatch(failed cache.WatchErrorHandlerWithContext) (*tableWatch, error) {
	o, configMaps := a.options, corev1.SchemeGroupVersion.WithResource("configmaps")
	w := &tableWatch{
		Agent: a, wake: loop.NewWake(),
		table: metadatainformer.NewFilteredMetadataInformer(o.TableMetadata, configMaps, o.Namespace, 0, nil, only(wellknown.TargetsConfigMap)).Informer(),
		view:  informers.NewFilteredConfigMapInformer(o.Client, o.Namespace, 0, nil, only(wellknown.ViewConfigMap)),
	}
	changed := func(any) { w.wake.Request() }
	handler := cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(any, any) { w.wake.Request() }, DeleteFunc: changed}
	_, err := w.table.AddEventHandler(handler)
	_, viewErr := w.view.AddEventHandler(handler)
	return w, errors.Join(err, viewErr, w.table.SetWatchErrorHandlerWithContext(failed), w.view.SetWatchErrorHandlerWithContext(failed))
}

// run follows the table until the context ends.
func (w *tableWatch) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { w.table.RunWithContext(ctx) })
	running.Go(func() { w.view.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), w.table.HasSynced) {
		w.follow(ctx)
	}
	running.Wait()
}

// follow takes the table from its view at each change, and reads it when the view was awaited in vain.
func (w *tableWatch) follow(ctx context.Context) {
	var late <-chan time.Time // nil while no reading is planned
	for {
		switch err := w.take(); {
		case err == nil:
			late = nil
		case late == nil:
			wait := w.options.ViewWait + rand.N(w.options.ViewWait)
			w.options.Log.Info("view of the table cannot be used; the table is read if none comes", "requeueAfter", wait, "err", err)
			late = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-late:
			late = nil
			if err := w.read(ctx); err != nil && ctx.Err() == nil {
				w.options.Log.Warn("table cannot be read; tunnels stay as they are", "err", err)
			}
		}
	}
}

// take puts what the view has, and returns why the table must be read instead.
//
//	table      view                         result
//	none       any                          there is no table
//	as put     any                          nothing
//	changed    of this version              the text of the view
//	changed    missing, other or unreadable an error
func (w *tableWatch) take() error {
	table := w.metadata()
	switch {
	case table == nil:
		w.put("", "")
		return nil
	case w.version == ports.VersionOf(table):
		return nil
	}
	text, err := ports.ReadView(stored[*corev1.ConfigMap](w.view, w.options.Namespace, wellknown.ViewConfigMap), table)
	if err == nil {
		w.put(text, ports.VersionOf(table))
	}
	return err
}

func (w *tableWatch) put(text, version string) {
	w.version = version
	w.inbox.put(func(n *inputs) { n.table, n.synced, n.deleted = text, true, version == "" })
}

// metadata returns that of the table; nil if there is none.
func (w *tableWatch) metadata() *metav1.PartialObjectMetadata {
	return stored[*metav1.PartialObjectMetadata](w.table, w.options.Namespace, wellknown.TargetsConfigMap)
}

// stored returns an object of an informer; nil if there is none.
func stored[T any](informer cache.SharedIndexInformer, namespace, name string) T {
	object, _, _ := informer.GetStore().GetByKey(namespace + "/" + name) // it has no error
	typed, _ := object.(T)
	return typed
}

// read puts the table. It lists, because agents have no right to get. The apiserver answers from its cache, once that
// has what the watch has shown.
func (w *tableWatch) read(ctx context.Context) error {
	table := w.metadata()
	if table == nil {
		return nil
	}
	w.metrics.reads.Inc()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	o := metav1.ListOptions{ResourceVersion: table.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	only(wellknown.TargetsConfigMap)(&o)
	list, err := w.options.Client.CoreV1().ConfigMaps(w.options.Namespace).List(ctx, o)
	if err != nil {
		return err
	}
	for _, object := range list.Items {
		if object.Name == wellknown.TargetsConfigMap {
			w.put(object.Data[wellknown.TargetsKey], ports.VersionOf(&object))
		}
	}
	return nil
}
