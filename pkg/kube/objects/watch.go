package objects

import (
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/program/logging"
)

// OnChange calls a function for each change of an informer's objects, with the object as it was and as
// it is: nil before it was added, and after it was deleted.
func OnChange(changed func(before, after any), informers ...cache.SharedIndexInformer) error {
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { changed(nil, object) },
		UpdateFunc: changed,
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			changed(object, nil)
		},
	}
	var errs []error
	for _, informer := range informers {
		_, err := informer.AddEventHandler(handler)
		errs = append(errs, err)
	}
	return logging.Errors(errs...)
}
